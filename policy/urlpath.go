package policy

import "strings"

// settleURLPath checks a path of a rule for plain HTTP. Rules are written decoded
// and in one spelling; a request's path is brought into the same form, or refused
// where servers could read it in several ways.
func settleURLPath(p string) (string, error) {
	const forms = "write a path such as /v1/*, or /v1/** with all below it"
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", faultf(forms, "%q does not start with a slash", p)
	case strings.ContainsAny(p, "?#"):
		return "", faultf("leave out all from the ? or # on", "%q holds a query or a fragment, and only paths are judged", p)
	case strings.Contains(p, "%"):
		return "", faultf("write it decoded: requests are decoded before they are judged", "%q holds a %% escape", p)
	case strings.ContainsAny(p, "\\;") || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return "", faultf(forms, "%q holds a character that paths of rules cannot hold", p)
	}
	parts := strings.Split(p[1:], "/")
	for i, part := range parts {
		switch {
		case part == "." || part == ".." || part == "" && i < len(parts)-1:
			return "", faultf("write it without . and .. and double slashes", "%q is not in its shortest form", p)
		case part != "**" && strings.Contains(part, "**"):
			return "", faultf("write ** between two slashes, and * for a part of a name", "%q holds ** beside other characters", p)
		}
	}
	return p, nil
}
