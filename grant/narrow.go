package grant

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// badRequest returns an error that says what is wrong with a field of a request, and what
// would fix it.
func badRequest(field, problem, fix string) error {
	return fmt.Errorf("request: %s %s; %s", field, problem, fix)
}

// badDecision returns an error that says why a decision is invalid, and what would fix it. The
// request keeps waiting.
func badDecision(id, problem, fix string) error {
	return fmt.Errorf("decision on request %s: %s; %s", id, problem, fix)
}

// maxReason limits the length of a request's reason, which a person has to read.
const maxReason = 500

// normalize checks a request and resolves its path: absolute, without links or "..", so that a
// person sees the path that would be opened.
func normalize(r *Request, real func(string) (string, error)) error {
	if len(r.Reason) > maxReason {
		return badRequest("reason", fmt.Sprintf("is longer than %d bytes", maxReason), "say it in a sentence")
	}
	switch r.Access {
	case Read, Write:
		return normalizePath(r, real)
	case Connect:
		return normalizeHost(r)
	default:
		return badRequest("access", fmt.Sprintf("%q is not known", r.Access), "write read, write or connect")
	}
}

func normalizePath(r *Request, real func(string) (string, error)) error {
	if r.Host != "" {
		return badRequest("host", "does not go with access "+string(r.Access), "leave it out, or ask to connect")
	}
	p := r.Path
	if rest, ok := pathx.InHome(p); ok {
		home, _ := os.UserHomeDir() // without a home folder the path stays relative
		p = path.Join(home, rest)
	}
	switch {
	case p == "":
		return badRequest("path", "is empty", "name the file or folder")
	case strings.IndexByte(p, 0) >= 0:
		return badRequest("path", "holds a NUL byte", "leave it out")
	case !path.IsAbs(p):
		return badRequest("path", fmt.Sprintf("%q is relative", p), "write it from / or ~ on")
	}
	clean, err := real(p)
	if err != nil {
		return badRequest("path", fmt.Sprintf("%q cannot be looked up: %v", r.Path, err), "name one that you can reach yourself")
	}
	if clean != r.Path {
		r.Written = r.Path
	}
	r.Path = clean
	return nil
}

func normalizeHost(r *Request) error {
	if r.Path != "" {
		return badRequest("path", "does not go with access connect", "leave it out, or ask to read or write")
	}
	h, err := policy.ParseHost(r.Host)
	if err != nil {
		return badRequest("host", err.Error(), "name one host, with a port if you know it")
	}
	if err := h.Openable(); err != nil {
		return badRequest("host", err.Error(), "no grant opens it")
	}
	r.Host = h.String()
	return nil
}

// apply makes a grant from a request and a decision that allows it. A decision that gives more
// than was asked for is an error.
func apply(r *Request, d Decision, real func(string) (string, error), now time.Time) (*Grant, error) {
	bad := func(problem, fix string) error { return badDecision(r.ID, problem, fix) }
	if d.Rest {
		return nil, bad("all that a run asks for can be refused, and not be given", "leave rest out")
	}
	g := &Grant{ID: r.ID, Path: r.Path, Host: r.Host, Access: r.Access, Scope: d.Scope, Workspace: r.Workspace, Run: r.Run,
		By: d.By, Reason: r.Reason, Note: d.Note, Made: now.UTC().Truncate(time.Second)}
	if d.Path != "" {
		if r.Access == Connect {
			return nil, bad("a path does not narrow a host", "leave it out")
		}
		clean, err := real(d.Path)
		if err != nil {
			return nil, bad(fmt.Sprintf("%q cannot be looked up: %v", d.Path, err), "choose "+r.Path+" or something below it")
		}
		g.Path = clean
	}
	if d.Host != "" {
		h, err := policy.ParseHost(d.Host)
		if err != nil || r.Access != Connect {
			return nil, bad(fmt.Sprintf("%q does not narrow %s", d.Host, r.Subject()), "leave it out, or write "+r.Subject()+" with a port")
		}
		if err := h.Openable(); err != nil {
			return nil, bad(err.Error(), "choose another")
		}
		g.Host = h.String()
	}
	if d.Access != "" {
		g.Access = d.Access
	}
	if !within(r.Path, r.Host, r.Access, &Request{Path: g.Path, Host: g.Host, Access: g.Access}) {
		return nil, bad(fmt.Sprintf("%s %s is more than %s", g.Access, g.Subject(), r), "give that or less")
	}
	return g, scope(g, d, now, bad)
}

func scope(g *Grant, d Decision, now time.Time, bad func(problem, fix string) error) error {
	switch g.Scope {
	case "":
		g.Scope = Once
	case Once, Session, Always:
	case Timed:
		if d.For <= 0 {
			return bad("no time is given", "say for how long, as in 1h")
		}
		g.Expires = now.Add(d.For).UTC().Round(0) // to the nanosecond, so that no duration is too short
		return nil
	default:
		return bad(fmt.Sprintf("scope %q is not known", g.Scope), "write once, session, timed or always")
	}
	if d.For != 0 {
		return bad("a time goes with scope timed only", "leave it out, or choose timed")
	}
	return nil
}

// within reports whether a request asks for no more than path, host and access give.
func within(p, host string, access Access, r *Request) bool {
	switch access {
	case Read, Write:
		return p != "" && (r.Access == Read || r.Access == access) && r.Path != "" && pathx.Within(p, r.Path)
	case Connect:
		return r.Access == Connect && hostWithin(host, r.Host)
	default:
		return false
	}
}
