package policy

import (
	"errors"
	"path"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// checkForm checks a path as written and reports whether it is relative.
func checkForm(p string) (relative bool, err error) {
	var unknown *pathx.UnknownURNError
	var syntax *pathx.SyntaxError
	err = pathx.Check(p)
	switch {
	case p == "":
		return false, faultf("name a path, or remove the entry", "the path is empty")
	case strings.IndexByte(p, 0) >= 0:
		return false, faultf("remove it", "holds a NUL byte")
	case errors.As(err, &unknown):
		return false, faultf("known: urn:cloche:cwd, urn:cloche:workspace, urn:cloche:document, urn:cloche:self", "unknown name %q", p)
	case errors.As(err, &syntax):
		reason, fix, _ := strings.Cut(syntax.Reason, "; ")
		return false, faultf(fix, "%q: %s", p, reason)
	}
	first, _, _ := strings.Cut(p, "/")
	place := first == "~" || first == "cwd" || strings.HasPrefix(first, urnPrefix)
	variable := strings.HasPrefix(p, "$") && !strings.HasPrefix(p, "$$")
	return !place && !variable && !isAbsolute(p) && !strings.HasPrefix(p, "**"), nil
}

const urnPrefix = "urn:cloche:"

// isAbsolute accepts paths that begin with a slash on every system, and the system's own form.
func isAbsolute(p string) bool { return strings.HasPrefix(p, "/") || filepath.IsAbs(p) }

// sampleVars are sample values for what is only known on a machine.
var sampleVars = pathx.Vars{
	Home: "/home", Cwd: "/cwd", Workspace: "/workspace", Document: "/document", Self: "/self",
	Env: func(string) (string, bool) { return "x", true }, Pattern: true,
}

// checkPattern reports a pattern that would match nothing, or not what it seems to.
func checkPattern(p string, relative bool) error {
	full, err := expandSample(p, relative)
	if err == nil {
		if _, fault := pathx.NormalGlob(full); fault != nil {
			return faultf(fault.Fix, "%q is no pattern: %s", p, fault.Reason)
		}
	}
	var fault *pathx.GlobError
	if errors.As(err, &fault) {
		return faultf(fault.Fix, "%q %s", p, fault.Reason)
	}
	return nil // other expansion errors are reported when a command runs
}

// expandSample expands a pattern with sample values.
func expandSample(p string, relative bool) (string, error) {
	switch {
	case strings.HasPrefix(p, "**/"):
		return pathx.ExpandAnywhere(p, sampleVars)
	case relative:
		return pathx.Expand("/"+p, sampleVars)
	}
	return pathx.Expand(p, sampleVars)
}

// A pathUse says what a path of a document is for.
type pathUse struct {
	// globs are allowed.
	globs bool
	// inside: the path is one inside the sandbox, so a relative path cannot be joined to the
	// document's folder.
	inside bool
	// lasting: the rule also applies to files that do not exist yet.
	lasting bool
}

// settle checks a path and joins a relative one to base.
func (u pathUse) settle(base, p string) (string, error) {
	relative, err := checkForm(p)
	if err == nil && u.lasting && pathx.IsGlob(p) {
		err = checkPattern(p, relative)
	}
	switch {
	case err != nil:
		return p, err
	case !u.globs && pathx.IsGlob(p):
		return p, faultf("write the path out", "%q holds *, ?, [ or {a,b}, and globs are not allowed here", p)
	case !relative:
		return p, nil
	case u.inside:
		return p, faultf("write an absolute path", "%q is relative", p)
	case base == "":
		return p, faultf("write an absolute path, ~/"+cleanRelative(p)+" or urn:cloche:workspace/"+cleanRelative(p),
			"%q is relative, and this policy has no folder of its own", p)
	case pathx.IsGlob(base) && (u.lasting || pathx.IsGlob(p)):
		return p, faultf("start the entry with urn:cloche:workspace/",
			"%q cannot be joined to %s, whose name would be read as a glob", p, base)
	}
	return joinBase(base, p), nil
}

func cleanRelative(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// joinBase joins base and p lexically. A dollar sign in base is doubled, so that it does not
// start a variable. A path with variables is not cleaned, since a ".." may be part of a
// default value.
func joinBase(base, p string) string {
	base = pathx.Literal(base)
	if strings.Contains(p, "$") {
		return strings.TrimSuffix(base, "/") + "/" + strings.TrimPrefix(p, "./")
	}
	return path.Join(base, p)
}

// samePath returns a normal form of a path, in which two spellings of it are equal.
func samePath(p string) string {
	if strings.Contains(p, "$") {
		return strings.TrimRight(p, "/")
	}
	return path.Clean(p)
}
