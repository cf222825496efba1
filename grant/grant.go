// Package grant handles access that a person gives while a command runs or waits: the request,
// the decision, and the grant.
//
// A [Desk] holds requests until somebody decides, they time out, or the asker gives up; the
// last two mean no. A decision may give less than was asked for and never more: a path below,
// reading instead of writing, a port of the host. A grant with scope "always" is in a [Store],
// on disk, before the asker gets the answer.
//
// A grant is an edit of the policy with an origin. It opens nothing by itself: it takes effect
// in the next plan, or in the broker that holds the blocked call.
package grant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// Access is the kind of access that is asked for.
type Access string

// The kinds of access.
const (
	Read    Access = "read"
	Write   Access = "write" // includes reading
	Connect Access = "connect"
)

// Scope is how long a grant lasts.
type Scope string

// The scopes.
const (
	Once    Scope = "once"    // for this run
	Session Scope = "session" // for the commands of this session
	Timed   Scope = "timed"   // until a time, in every session of the workspace
	Always  Scope = "always"  // until it is revoked
)

// A Request asks for access.
type Request struct {
	// ID names the request; the desk sets it.
	ID string `json:"id"`
	// Path is the file or folder for Read and Write: absolute or in the home folder ("~/x").
	// The desk resolves links and ".." before anybody sees it. Written is then the original
	// path, if it differs.
	Path    string `json:"path,omitempty"`
	Written string `json:"written,omitempty"`
	// File is the file that was denied, if Path is the folder around it.
	File string `json:"file,omitempty"`
	// Secret: the path is hidden because it contains secrets.
	Secret bool `json:"secret,omitempty"`
	// Keeps are the paths below Path that a grant would not open. The desk sets it.
	Keeps []Kept `json:"keeps,omitempty"`
	// Host is the host for Connect, in the form of policy.ParseHost.
	Host   string `json:"host,omitempty"`
	Access Access `json:"access"`
	// Reason is the asker's explanation. It is shown as such, because the asker may be an
	// untrusted program.
	Reason string `json:"reason,omitempty"`
	// Command is the command line of the run, Program and Pid the process that was denied,
	// Rule the rule that denied it, Workspace the workspace of the run.
	Command   []string `json:"command,omitempty"`
	Program   string   `json:"program,omitempty"`
	Pid       int      `json:"pid,omitempty"`
	Rule      string   `json:"rule,omitempty"`
	Workspace string   `json:"workspace,omitempty"`
	// Run is the run that asks. A grant with scope once is for that run only.
	Run string `json:"run,omitempty"`
	// Made is the time of the request, Expires the time at which it is denied.
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
}

// Subject returns the path or the host.
func (r *Request) Subject() string {
	if r.Access == Connect {
		return r.Host
	}
	return r.Path
}

// String returns a short form of the request: "write /home/ana/.cache/x".
func (r *Request) String() string { return string(r.Access) + " " + r.Subject() }

// A Kept is a path or pattern in a folder that a grant of the folder does not open, because a
// more specific rule is about it.
type Kept struct {
	Path string `json:"path"`
	// Pattern: Path is a pattern.
	Pattern bool `json:"pattern,omitempty"`
	// Access is the access that remains: hidden, or read if write was asked for.
	Access policy.Access `json:"access"`
	// Rule is the origin of the rule.
	Rule string `json:"rule"`
}

// String returns the path, the remaining access and the rule: "/x/y (hidden, preset
// secrets:16)".
func (k Kept) String() string {
	left := "hidden"
	if k.Access == policy.Read {
		left = "read-only"
	}
	return k.Path + " (" + left + ", " + k.Rule + ")"
}

// keptWords is how many paths KeptText names at most.
const keptWords = 5

// KeptText lists the paths that stay closed, or is empty. It does not escape file names.
func KeptText(kept []Kept) string {
	var words []string
	for _, k := range kept[:min(len(kept), keptWords)] {
		words = append(words, k.String())
	}
	if more := len(kept) - keptWords; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// StaysClosed returns the paths of r.Keeps that the grant g, of the request's path or a part
// of it, does not open.
func (r *Request) StaysClosed(g *Grant) []Kept {
	return slices.DeleteFunc(slices.Clone(r.Keeps), func(k Kept) bool {
		elsewhere := k.Path == g.Path || !pathx.Within(g.Path, k.Path) && !k.Pattern
		return elsewhere || k.Access == policy.Read && g.Access == Read
	})
}

// A Decision is the answer to a request. The zero value denies.
type Decision struct {
	Allow bool `json:"allow"`
	// Path, Host and Access narrow the request; empty fields keep it as it is.
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Access Access `json:"access,omitempty"`
	// Scope is how long the grant lasts; empty is Once. For is the duration of Timed.
	Scope Scope         `json:"scope,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	// Rest: a denial applies to all requests of the run.
	Rest bool `json:"rest,omitempty"`
	// By is who decided: a person, a hook, a rule. Note is a remark on the decision.
	By   string `json:"by,omitempty"`
	Note string `json:"note,omitempty"`
}

// A Grant is access that was given.
type Grant struct {
	ID     string `json:"id"`
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Access Access `json:"access"`
	Scope  Scope  `json:"scope"`
	// Expires is set for Timed.
	Expires time.Time `json:"expires,omitzero"`
	// Workspace is the workspace in which the grant applies, Run the run to which a grant with
	// scope Once applies.
	Workspace string `json:"workspace,omitempty"`
	Run       string `json:"run,omitempty"`
	// By, Reason, Note and Made say who gave the grant, what for, with which remark, and when.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Note   string    `json:"note,omitempty"`
	Made   time.Time `json:"made"`
}

// Subject returns the path or the host.
func (g *Grant) Subject() string {
	if g.Access == Connect {
		return g.Host
	}
	return g.Path
}

// String returns a short form of the grant: "write /home/ana/.cache/x (always)".
func (g *Grant) String() string {
	return fmt.Sprintf("%s %s (%s)", g.Access, g.Subject(), g.Scope)
}

// Origin returns the origin of the grant's rule.
func (g *Grant) Origin() policy.Origin {
	words := []string{"grant"}
	if g.ID != "" {
		words = append(words, g.ID)
	}
	if g.By != "" {
		words = append(words, "by", g.By)
	}
	words = append(words, g.Made.UTC().Format("2006-01-02 15:04"))
	return policy.Origin{Layer: policy.LayerGrant, Source: strings.Join(words, " ")}
}

// Live reports whether the grant has not expired.
func (g *Grant) Live(now time.Time) bool {
	return g.Expires.IsZero() || now.Before(g.Expires)
}

// Covers reports whether the grant gives everything that is asked for.
func (g *Grant) Covers(r *Request) bool {
	return within(g.Path, g.Host, g.Access, r)
}
