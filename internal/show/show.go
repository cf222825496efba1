// Package show writes names that others chose so that people can read them.
package show

import (
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns a name as it can be shown: quoted, if it could act on a
// terminal.
func Visible(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// HostPort joins a host and a port, which is left out if it is the usual one.
func HostPort(host string, port, usual int) string {
	switch {
	case port != usual:
		return net.JoinHostPort(host, strconv.Itoa(port))
	case strings.Contains(host, ":"):
		return "[" + host + "]"
	}
	return host
}
