package testenv

import (
	"testing"
	"time"
)

// Patience is how long a test waits for something that must happen. It only bounds a test
// that fails: one that passes takes as long as the machine needs. A shorter limit makes a
// test depend on how busy the machine is.
const Patience = 2 * time.Minute

// Eventually polls until the condition is true, and fails the test if that takes longer
// than [Patience].
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Becomes(ok) {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}

// Becomes polls until the condition is true, and reports whether that took at most
// [Patience]. It is for helper processes and for tests that say more about a failure.
func Becomes(ok func() bool) bool {
	end := time.Now().Add(Patience)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause) // between two checks of the condition
	}
	return true
}
