package policy

import "strings"

// A Destination is one host and port that a command might connect to.
type Destination struct {
	Protocol string // tcp, udp or icmp
	// Host is a name or an address.
	Host string
	// Port is 0 where none was named, and for icmp.
	Port int
	// Method and Path are those of a request of HTTP; without one Method is
	// empty.
	Method, Path string
	// TLS: the request is inside TLS (https).
	TLS bool
}

const destinationForms = "write host:port, udp://host:port, icmp://host, or GET https://host/path"

// ParseDestination reads "host[:port]", an address, "[2001:db8::1]:443", each with
// an optional "tcp://", "udp://" or "icmp://", and "[METHOD] http://host[:port][/path]" or
// the same with "https://".
func ParseDestination(s string) (Destination, error) {
	d := Destination{Protocol: "tcp"}
	rest := s
	if method, url, ok := strings.Cut(s, " "); ok {
		d.Method, rest = method, strings.TrimLeft(url, " ")
	}
	scheme, host, ok := strings.Cut(rest, "://")
	if !ok {
		scheme, host = "tcp", rest
	}
	usual := 0
	switch scheme = strings.ToLower(scheme); scheme {
	case "http", HTTPS:
		host, usual = d.cutPath(scheme, host)
	case "tcp", "udp", "icmp":
		d.Protocol = scheme
	default:
		return d, faultf(destinationForms, "%q has the unknown scheme %q", s, scheme)
	}
	if scheme != "http" && scheme != HTTPS && d.Method != "" {
		return d, faultf(destinationForms, "%q has a method, and only requests of HTTP have one", s)
	}
	e, err := ParseHost(host)
	switch {
	case err != nil:
		return d, err
	case e.Private || strings.HasPrefix(e.Host, "*") || strings.Contains(e.Host, "/") || e.LastPort != 0:
		return d, faultf(destinationForms, "%q is more than one host and port", s)
	case scheme == "icmp" && e.Port != 0:
		return d, faultf("leave the port out", "%q has a port, and icmp has none", s)
	}
	d.Host, d.Port = e.Host, e.Port
	if d.Port == 0 {
		d.Port = usual
	}
	return d, nil
}

// cutPath splits a URL.
func (d *Destination) cutPath(scheme, rest string) (host string, port int) {
	host, path, _ := strings.Cut(rest, "/")
	d.Path = "/" + path
	if d.Method == "" {
		d.Method = "GET"
	}
	if d.TLS = scheme == HTTPS; d.TLS {
		return host, 443
	}
	return host, 80
}
