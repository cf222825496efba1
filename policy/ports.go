package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

// A portRange is one port, or all from First to Last. The zero value means every port. In a
// policy file it is a number or "8000-8010".
type portRange struct{ First, Last int }

// IsZero reports whether the range means every port.
func (r portRange) IsZero() bool { return r == portRange{} }

// String returns the form of a policy file, which is empty for every port.
func (r portRange) String() string {
	switch {
	case r.IsZero():
		return ""
	case r.Last == 0 || r.Last == r.First:
		return strconv.Itoa(r.First)
	}
	return strconv.Itoa(r.First) + "-" + strconv.Itoa(r.Last)
}

// MarshalText writes the form of a policy file.
func (r portRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the form of a policy file.
func (r *portRange) UnmarshalText(b []byte) error {
	first, last, ranged := strings.Cut(string(b), "-")
	n, ok := parsePort(first)
	m := n
	if ranged && ok {
		m, ok = parsePort(last)
	}
	if !ok {
		return faultf("write a port from 1 to 65535, a range such as 8000-8010, or none for every port", "%q is not a port", b)
	}
	if m < n {
		return faultf("write "+strconv.Itoa(m)+"-"+strconv.Itoa(n), "the range %q ends before it starts", b)
	}
	*r = portRange{First: n}
	if m != n {
		r.Last = m
	}
	return nil
}

func parsePort(s string) (int, bool) {
	n, ok := parseDigits(s)
	return int(n), ok && n >= 1 && n <= 65535
}

// A publishedPort is an entry of network.publish, a forwardedPort one of
// network.forward.
type (
	publishedPort PortRule
	forwardedPort PortRule
)

func (p publishedPort) MarshalText() ([]byte, error) { return []byte(PortRule(p).String()), nil }
func (p forwardedPort) MarshalText() ([]byte, error) { return []byte(PortRule(p).String()), nil }

func (p *publishedPort) UnmarshalText(b []byte) error {
	r, err := parsePortRule(string(b), false)
	*p = publishedPort(r)
	return err
}

func (p *forwardedPort) UnmarshalText(b []byte) error {
	r, err := parsePortRule(string(b), true)
	*p = forwardedPort(r)
	return err
}

// String returns the rule in the form of a policy file.
func (r PortRule) String() string {
	s := strconv.Itoa(r.Host)
	if r.Inside != r.Host {
		s += ":" + strconv.Itoa(r.Inside)
	}
	if strings.Contains(r.Address, ":") {
		s = "[" + r.Address + "]:" + s
	} else if r.Address != "" {
		s = r.Address + ":" + s
	}
	if r.Protocol == "udp" {
		s += "/udp"
	}
	return s
}

const (
	publishForms = "write [ADDRESS:]PORT[:INSIDEPORT], with /udp at the end for UDP"
	forwardForms = "write PORT[:INSIDEPORT], with /udp at the end for UDP"
)

// parsePortRule reads an entry of network.publish, "[ADDRESS:]HOSTPORT[:INSIDEPORT][/udp]", or
// of network.forward, "PORT[:INSIDEPORT][/udp]". For a published port, the default address is
// 127.0.0.1; a HOSTPORT of 0 means any free port, and needs an INSIDEPORT. A forwarded port is
// always one of the host's loopback.
func parsePortRule(s string, forward bool) (PortRule, error) {
	r := PortRule{Protocol: "tcp"}
	use, forms := "publish", publishForms
	if forward {
		use, forms = "forward", forwardForms
	}
	ports, protocol, ok := strings.Cut(s, "/")
	if ok {
		r.Protocol = strings.ToLower(protocol)
	}
	if r.Protocol != "tcp" && r.Protocol != "udp" {
		return r, faultf(forms, "%q has the protocol %q, and ports have only tcp and udp", s, protocol)
	}
	if !forward {
		var err error
		if ports, err = r.cutAddress(s, ports); err != nil {
			return r, err
		}
	} else if strings.ContainsAny(ports, ".[") || strings.HasPrefix(ports, "localhost:") {
		return r, faultf("write the port alone; another machine is reached by a rule of network.allow", "%q holds an address, and only the host's loopback is forwarded", s)
	}
	host, inside, two := strings.Cut(ports, ":")
	if !two {
		inside = host
	}
	hostPort, ok := parsePort(host)
	if !forward && host == "0" {
		if !two {
			return r, faultf("write 0:PORT, where PORT is the one inside", "%q does not say which port is meant", s)
		}
		hostPort, ok = 0, true
	}
	insidePort, insideOK := parsePort(inside)
	if !ok || !insideOK {
		return r, faultf(forms, "%q is not a port to %s", s, use)
	}
	r.Host, r.Inside = hostPort, insidePort
	return r, nil
}

// cutAddress splits the address off the front of "ADDRESS:HOSTPORT[:INSIDEPORT]".
func (r *PortRule) cutAddress(s, ports string) (string, error) {
	var text string
	if inner, ok := strings.CutPrefix(ports, "["); ok {
		address, rest, closed := strings.Cut(inner, "]:")
		if !closed {
			return "", faultf("write [::1]:8080", "%q has no port behind its address", s)
		}
		text, ports = address, rest
	} else if first, rest, ok := strings.Cut(ports, ":"); ok && strings.ContainsAny(first, ".*") || first == "localhost" {
		text, ports = first, rest
	}
	if text == "" {
		return ports, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return "", faultf("write an address of this machine, such as 127.0.0.1 or [::1], or 0.0.0.0 for all of them", "%q is not an address", text)
	}
	r.Address = addr.Unmap().String()
	return ports, nil
}
