package egress

import (
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/plan"
)

// Some servers and frameworks take the method, the path or the host of a request
// from a header field instead of the request line and Host. Such a request would
// be judged as one thing and served as another.

// plainName is a field's name as gateways to CGI and WSGI see it, which map every
// other character to one: X_Original.URL is X-Original-URL there.
func plainName(name string) string {
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

// checkNames refuses fields that only some servers take for the ones that say
// where a request ends and whom it is for.
func (h *head) checkNames() error {
	for _, f := range h.fields {
		switch name := plainName(f.name); name {
		case "content-length", "transfer-encoding", "host":
			if name != strings.ToLower(f.name) {
				return malformed("the field " + plan.Visible(f.name) + " is another spelling of " + name)
			}
		}
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Host"} {
		if h.has("Connection", name) {
			return malformed("its Connection field lets proxies remove " + name)
		}
	}
	return nil
}

// overridesRequest reports whether servers may take the method or the path of a
// request from a field. Destination is the second path of WebDAV's COPY and MOVE.
func overridesRequest(name string) bool {
	name = plainName(name)
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

// overridesHost reports whether servers may take the host of a request from a
// field.
func overridesHost(f field) bool {
	name := plainName(f.name)
	if name == "forwarded" {
		return strings.Contains(strings.ToLower(f.value), "host")
	}
	parts := strings.Split(name, "-")
	return parts[0] == "x" && (slices.Contains(parts, "host") || strings.HasSuffix(name, "forwarded-server"))
}

// checkOverrides says why the fields of a request could make it another one than
// was judged, or returns "". Methods and paths matter only where rules are about them.
func checkOverrides(fields []field, host string, requests bool) string {
	for _, f := range fields {
		switch {
		case requests && overridesRequest(f.name):
			return "servers may take another method or path from the field " + plan.Visible(f.name) + "; send the request without it"
		case overridesHost(f) && !(host != "" && sameHost(f.value, host)):
			return "servers may take another host from the field " + plan.Visible(f.name) + "; send the request without it"
		}
	}
	return ""
}
