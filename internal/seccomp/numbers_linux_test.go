//go:build linux && (amd64 || arm64)

package seccomp

import "testing"

// The numbers are those of x/sys, which are generated from the kernel's headers.
func TestNumbersMatchHeaders(t *testing.T) {
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range numbers {
		want, ok := hostNumbers[e.name]
		if !ok {
			want = absent
		}
		if got := m.pick(e); got != want {
			t.Errorf("%s: %s is %d, want %d", m.name, e.name, got, want)
		}
	}
	if lastKnown != newestReviewed {
		t.Errorf("lastKnown is %d, want %d", lastKnown, newestReviewed)
	}
}
