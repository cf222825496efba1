package judge

import (
	"slices"
	"strings"
)

// Some servers and frameworks read the method, the path or the host of a request from a
// header field instead of the request line and Host. The rules would then be asked about
// another request than the one that is served.

// PathReadings decodes the path of a request, given as it stands in the request line. full
// is the decoded path, bare lacks the parameters behind semicolons, too. bad says why
// servers read the path in still other ways; the two others are then empty.
func PathReadings(raw string) (full, bare, bad string) {
	p := readPath(raw)
	if p.bad != "" {
		return "", "", p.bad
	}
	return p.full, p.bare, ""
}

// PlainField returns the name of a field as gateways to CGI and WSGI read it. They
// replace every character that is not a letter or digit by the same one, so
// X_Original.URL means X-Original-URL.
func PlainField(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		}
		return '-'
	}, name)
}

// FramingAlias returns the name of the field that some servers read in a field of another
// spelling (Content_Length), if it says where a body ends or which host is meant.
func FramingAlias(name string) (means string, ok bool) {
	switch means = PlainField(name); means {
	case "content-length", "transfer-encoding", "host":
		return means, means != strings.ToLower(name)
	}
	return "", false
}

// OverridesRequest reports whether some server reads the method or the path of a
// request from this field. Destination is the second path of WebDAV's COPY and MOVE.
func OverridesRequest(name string) bool {
	name = PlainField(name)
	if name == "destination" || strings.Contains(name, "method-override") {
		return true
	}
	parts := strings.Split(name, "-")
	if parts[0] != "x" {
		return false
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(parts, w) })
	}
	return has("method", "verb", "rewrite") ||
		has("url", "uri", "path", "prefix", "query") && has("original", "forwarded", "override", "replaced", "proxy", "request", "real", "http")
}

// OverridesHost reports whether some server reads the host of a request from this
// field.
func OverridesHost(name, value string) bool {
	name = PlainField(name)
	if name == "forwarded" {
		return strings.Contains(strings.ToLower(value), "host")
	}
	parts := strings.Split(name, "-")
	return parts[0] == "x" && (slices.Contains(parts, "host") || strings.HasSuffix(name, "forwarded-server"))
}
