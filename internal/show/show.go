// Package show makes names from untrusted sources safe to print.
package show

import (
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns a name for printing. It is quoted if it could control a terminal.
func Visible(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// HostPort joins a host and a port. The port is left out if it is the usual one.
func HostPort(host string, port, usual int) string {
	switch {
	case port != usual:
		return net.JoinHostPort(host, strconv.Itoa(port))
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	}
	return host
}
