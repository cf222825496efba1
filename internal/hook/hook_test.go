package hook

import (
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
)

// N2: a hook answers with one decision and nothing else; times are written as people
// write them.
func TestHookAnswers(t *testing.T) {
	for text, want := range map[string]*grant.Decision{
		`{"allow": true}`: {Allow: true},
		`{"allow": true, "scope": "timed", "for": "90m", "note": "x"}`: {Allow: true, Scope: grant.Timed, For: 90 * time.Minute, Note: "x"},
		`{"allow": true, "scope": "timed", "for": 1000000000}`:         {Allow: true, Scope: grant.Timed, For: time.Second},
		`{"allow": true} {"allow": false}`:                             nil,
		`{"allow": true} or not`:                                       nil,
		`{"allow": true, "scope": "timed", "for": "a while"}`:          nil,
		`{"allow": true, "always": true}`:                              nil,
		`yes`:                                                          nil,
	} {
		if got, err := readDecision(text); (err == nil) != (want != nil) || want != nil && *got != *want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
