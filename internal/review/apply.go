package review

import (
	"errors"
)

// Limits on what a list holds: a command can make any number of names.
const (
	maxChanges = 1 << 20
	maxDepth   = 200
	maxPath    = 3500
)

// ErrTooMany means that there are more changes than a list can hold.
var ErrTooMany = errors.New("there are more than 1048576 changes, which is too many to list; cloche review discard drops them")

// A Filter chooses files by their absolute paths. Nil is all of them.
type Filter func(abs string) bool

// Protect says why the file at an absolute path needs its own yes, or "".
type Protect func(abs string) string

// Options of an apply.
type Options struct {
	// Want chooses the files; nil is all.
	Want Filter
	// Protect says which need their own yes, and Allow gives it.
	Protect Protect
	Allow   Filter
	// Theirs takes the command's version where the host's has changed.
	Theirs bool
	// Merge merges both versions, where that is possible.
	Merge bool
	// Seen: a person has seen all changes as they are now. Otherwise what a command has changed since Looked is left.
	Seen bool
	// Patched has other texts for changed files, by their absolute paths: a part of the change.
	Patched map[string]Patched
}

// Patched is a text that was made from the host's file as a list found it.
type Patched struct {
	Text []byte
	Of   *Change
}

// An Outcome is what became of the chosen changes.
type Outcome struct {
	Applied    []*Change `json:"applied"`
	Conflicts  []*Change `json:"conflicts"`
	Protected  []*Change `json:"protected"`
	NotCarried []*Change `json:"not_carried"`
	// Unseen were changed by a command after a person has looked at the review.
	Unseen []*Change `json:"unseen"`
	Failed []Failure `json:"failed"`
}

// A Failure is a change that could not be applied, or undone.
type Failure struct {
	*Change
	Err error `json:"-"`
	// Text is the error, for JSON.
	Text string `json:"error"`
}

// Left is how many changes were not applied.
func (o *Outcome) Left() int {
	return len(o.Conflicts) + len(o.Protected) + len(o.NotCarried) + len(o.Unseen) + len(o.Failed)
}

// All reports whether everything was applied.
func (o *Outcome) All() bool {
	return o.Left() == 0
}

func (o *Outcome) fail(c *Change, err error) {
	o.Failed = append(o.Failed, Failure{c, err, err.Error()})
}

// ErrNothingToUndo means that no apply is left that could be undone.
var ErrNothingToUndo = errors.New("there is no apply to undo: only the last one can be, and only once")
