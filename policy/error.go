package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/spelling"
)

// An Error says what is wrong with one value of a document or a policy.
type Error struct {
	// Origin is where the value was written. Line and Column are 0 outside of files.
	Origin Origin
	// Field is the value's name by its keys, for example "paths.write[0]".
	Field   string
	Message string
	// Fix says what to write instead, if that is known.
	Fix string
}

// Error returns "FILE:LINE:COL: FIELD: MESSAGE; FIX".
func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	at := e.Origin.Source
	if e.Origin.Line > 0 {
		at = e.Origin.String()
	}
	if e.Origin.Column > 0 {
		at += ":" + strconv.Itoa(e.Origin.Column)
	}
	if at == "" {
		return s
	}
	return at + ": " + s
}

// A fault is an Error without its position.
type fault struct{ message, fix string }

func (f *fault) Error() string {
	if f.fix == "" {
		return f.message
	}
	return f.message + "; " + f.fix
}

func faultf(fix, format string, args ...any) error {
	return &fault{message: fmt.Sprintf(format, args...), fix: fix}
}

// place adds a position to an error.
func place(err error, o Origin, field string) *Error {
	e := &Error{Origin: o, Field: field, Message: err.Error()}
	var f *fault
	if errors.As(err, &f) {
		e.Message, e.Fix = f.message, f.fix
	}
	return e
}

// maxErrors limits how much a hostile file can make cloche print.
const maxErrors = 50

// joinErrors sorts errors by place and joins them; nil if there are none.
func joinErrors(errs []*Error) error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(a.Origin.Line-b.Origin.Line, a.Origin.Column-b.Origin.Column)
	})
	joined := make([]error, len(errs))
	for i, e := range errs {
		joined[i] = e
	}
	return errors.Join(joined...)
}

// nearest returns the known word that is closest to word, or "" if none is
// close enough to be meant.
func nearest(word string, known []string) string {
	best, bestDistance := "", 3
	if len(word) > 64 {
		return ""
	}
	for _, k := range known {
		limit := max(1, min(len(word), len(k))/2)
		if d := spelling.Distance(fold(word), fold(k)); d <= limit && d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// fold makes spellings that differ only in case and separators equal.
func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}
