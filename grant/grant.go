// Package grant is about access that a person gives while a command runs or
// waits: the request, the decision, and what comes of it.
//
// A [Desk] takes requests and holds them until somebody decides, a time-out
// passes or the asker gives up; the last two mean no. A decision may give less
// than was asked for and never more: a path below, reading instead of writing, a
// port of the host. What is given "always" is in a [Store], on the disk, before
// the asker hears of it.
//
// A grant is an edit of the policy with an origin. It opens nothing by itself:
// the next plan, or whoever holds the blocked call, does.
package grant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// Access is what is asked for.
type Access string

// The kinds of access.
const (
	Read    Access = "read"
	Write   Access = "write" // includes reading
	Connect Access = "connect"
)

// Scope is for how long an answer holds.
type Scope string

// The scopes.
const (
	Once    Scope = "once"    // for this run
	Session Scope = "session" // for the commands of this session
	Timed   Scope = "timed"   // until a time, in every session of the workspace
	Always  Scope = "always"  // until it is revoked
)

// A Request is what somebody asks for.
type Request struct {
	// ID names the request; the desk sets it.
	ID string `json:"id"`
	// Path is the file or folder for Read and Write: absolute or in the home
	// folder ("~/x"). The desk resolves links and ".." before anybody sees it;
	// Written is then what was asked for, where that differs.
	Path    string `json:"path,omitempty"`
	Written string `json:"written,omitempty"`
	// File is the very file that was refused, where Path is the folder around it.
	File string `json:"file,omitempty"`
	// Secret: the path is one of those that are hidden because they hold secrets.
	Secret bool `json:"secret,omitempty"`
	// Keeps is what stays closed in Path also when it is given; the desk fills it in.
	Keeps []Kept `json:"keeps,omitempty"`
	// Host is the host for Connect, in the form of policy.ParseHost.
	Host   string `json:"host,omitempty"`
	Access Access `json:"access"`
	// Reason is why, in the asker's words. It is shown as such: whoever asks may
	// be a program that is confined for good reason.
	Reason string `json:"reason,omitempty"`
	// Command is what runs, Program and Pid the process that was refused, Rule
	// the rule that refused it, Workspace where.
	Command   []string `json:"command,omitempty"`
	Program   string   `json:"program,omitempty"`
	Pid       int      `json:"pid,omitempty"`
	Rule      string   `json:"rule,omitempty"`
	Workspace string   `json:"workspace,omitempty"`
	// Run names the run that asks; what is granted once is for it alone.
	Run string `json:"run,omitempty"`
	// Made and Expires are when it was asked, and when the answer is no.
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
}

// Subject is the path or the host.
func (r *Request) Subject() string {
	if r.Access == Connect {
		return r.Host
	}
	return r.Path
}

// String is the request in a few words: "write /home/ana/.cache/x".
func (r *Request) String() string { return string(r.Access) + " " + r.Subject() }

// A Kept is a path or a pattern in a folder that a grant of the folder does not open,
// because a rule is about it in particular.
type Kept struct {
	Path string `json:"path"`
	// Pattern: Path is a pattern.
	Pattern bool `json:"pattern,omitempty"`
	// Access is what is left: hidden, or read where write was asked for.
	Access policy.Access `json:"access"`
	// Rule is where the rule comes from.
	Rule string `json:"rule"`
}

// String is the path with what is left and the rule: "/x/y (hidden, preset secrets:16)".
func (k Kept) String() string {
	left := "hidden"
	if k.Access == policy.Read {
		left = "read-only"
	}
	return k.Path + " (" + left + ", " + k.Rule + ")"
}

// keptWords bounds how many paths KeptText names.
const keptWords = 5

// KeptText names what stays closed, or is empty. It does not escape names of files.
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

// StaysClosed is what of the request's path a grant of it, or of a part, does not open.
func (r *Request) StaysClosed(g *Grant) []Kept {
	return slices.DeleteFunc(slices.Clone(r.Keeps), func(k Kept) bool {
		elsewhere := k.Path == g.Path || !pathx.Within(g.Path, k.Path) && !k.Pattern
		return elsewhere || k.Access == policy.Read && g.Access == Read
	})
}

// A Decision is somebody's answer. The zero value refuses.
type Decision struct {
	Allow bool `json:"allow"`
	// Path, Host and Access narrow what was asked for; empty leaves it.
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`
	Access Access `json:"access,omitempty"`
	// Scope is how long it holds; empty is Once. For is the time of Timed.
	Scope Scope         `json:"scope,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	// Rest is for a no: to this, and to all else that the run asks for.
	Rest bool `json:"rest,omitempty"`
	// By is who decided: a person, a hook, a rule. Note is what they said.
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
	// Workspace is where it holds, Run the run for which Once does.
	Workspace string `json:"workspace,omitempty"`
	Run       string `json:"run,omitempty"`
	// By, Reason, Note and Made are its provenance: who gave it, what for, what
	// they said to it, and when.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Note   string    `json:"note,omitempty"`
	Made   time.Time `json:"made"`
}

// Subject is the path or the host.
func (g *Grant) Subject() string {
	if g.Access == Connect {
		return g.Host
	}
	return g.Path
}

// String is the grant in a few words: "write /home/ana/.cache/x (always)".
func (g *Grant) String() string {
	return fmt.Sprintf("%s %s (%s)", g.Access, g.Subject(), g.Scope)
}

// Origin says where the rule that comes of the grant has its origin.
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

// Live reports whether the grant still holds.
func (g *Grant) Live(now time.Time) bool {
	return g.Expires.IsZero() || now.Before(g.Expires)
}

// Covers reports whether the grant gives what is asked for.
func (g *Grant) Covers(r *Request) bool {
	return within(g.Path, g.Host, g.Access, r)
}
