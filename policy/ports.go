package policy

import (
	"net/netip"
	"strconv"
	"strings"
)

// A portRange is one port, or all from First to Last. The zero value is every
// port. In a file it is a number or "8000-8010".
type portRange struct{ First, Last int }

// IsZero reports whether the range is every port.
func (r portRange) IsZero() bool { return r == portRange{} }

// String returns the form of a file, empty for every port.
func (r portRange) String() string {
	switch {
	case r.IsZero():
		return ""
	case r.Last == 0 || r.Last == r.First:
		return strconv.Itoa(r.First)
	}
	return strconv.Itoa(r.First) + "-" + strconv.Itoa(r.Last)
}

// MarshalText writes the form of a file.
func (r portRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the form of a file.
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
	r, err := parsePublish(string(b))
	*p = publishedPort(r)
	return err
}

func (p *forwardedPort) UnmarshalText(b []byte) error {
	r, err := parseForward(string(b))
	*p = forwardedPort(r)
	return err
}

// String returns the rule in the form of a file.
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

// parsePublish reads "[ADDRESS:]HOSTPORT[:INSIDEPORT][/udp]": a port of the host
// that leads to one inside. The host listens on 127.0.0.1 unless there is an
// address; a HOSTPORT of 0 is any free one, and needs an INSIDEPORT.
func parsePublish(s string) (PortRule, error) {
	e, ports, err := splitProtocol(s, publishForms)
	if err != nil {
		return e, err
	}
	if ports, err = e.cutAddress(s, ports); err != nil {
		return e, err
	}
	host, inside, two := strings.Cut(ports, ":")
	if !two {
		inside = host
	}
	n, ok := parsePort(host)
	if host == "0" {
		n, ok = 0, true
	}
	m, inner := parsePort(inside)
	switch {
	case host == "0" && !two:
		return e, faultf("write 0:PORT, where PORT is the one inside", "%q does not say which port is meant", s)
	case !ok || !inner:
		return e, faultf(publishForms, "%q is not a port to publish", s)
	}
	e.Host, e.Inside = n, m
	return e, nil
}

// cutAddress takes the address off the front of "ADDRESS:HOSTPORT[:INSIDEPORT]".
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

// parseForward reads "PORT[:INSIDEPORT][/udp]": a port inside that leads to
// PORT of the host's loopback.
func parseForward(s string) (PortRule, error) {
	e, ports, err := splitProtocol(s, forwardForms)
	if err != nil {
		return e, err
	}
	host, inside, two := strings.Cut(ports, ":")
	if !two {
		inside = host
	}
	n, ok := parsePort(host)
	m, inner := parsePort(inside)
	switch {
	case strings.ContainsAny(ports, ".[") || strings.HasPrefix(ports, "localhost:"):
		return e, faultf("write the port alone; another machine is reached by a rule of network.allow", "%q holds an address, and only the host's loopback is forwarded", s)
	case !ok || !inner:
		return e, faultf(forwardForms, "%q is not a port to forward", s)
	}
	e.Host, e.Inside = n, m
	return e, nil
}

func splitProtocol(s, forms string) (PortRule, string, error) {
	e := PortRule{Protocol: "tcp"}
	ports, name, ok := strings.Cut(s, "/")
	if !ok {
		return e, ports, nil
	}
	if e.Protocol = strings.ToLower(name); e.Protocol != "tcp" && e.Protocol != "udp" {
		return e, ports, faultf(forms, "%q has the protocol %q, and ports have only tcp and udp", s, name)
	}
	return e, ports, nil
}
