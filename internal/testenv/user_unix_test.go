//go:build unix

package testenv

import (
	"os"
	"testing"
)

func TestAlsoAsUser(t *testing.T) {
	t.Setenv(followsVariable, "") // whoever runs this
	if os.Getenv(rerunVariable) == "" {
		t.Setenv("CLOCHE_DIFF_TIME", "17s")
	}
	AlsoAsUser(t)
	if os.Getenv(rerunVariable) == "" {
		return
	}
	if got := os.Getenv("CLOCHE_DIFF_TIME"); got != "17s" {
		t.Errorf("the fuzzers would run for %q, not for as long as root's", got)
	}
	if os.Geteuid() != UserID || os.Getegid() != UserID {
		t.Errorf("runs as %d:%d, want %d", os.Geteuid(), os.Getegid(), UserID)
	}
	if err := os.WriteFile("proof", nil, 0o600); err != nil {
		t.Errorf("its folder is not its own: %v", err)
	}
}

func TestExpectedOfUser(t *testing.T) {
	if got := expectedOfUser("bwrap, root,userns"); got != "bwrap,userns" {
		t.Errorf("got %q", got)
	}
}
