package testenv

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// A recorder is a testing.TB that notes how a test would have ended.
type recorder struct {
	testing.TB
	ended string
}

type stop struct{}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.ended = "skip: " + fmt.Sprintf(format, args...)
	panic(stop{})
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = "fail: " + fmt.Sprintf(format, args...)
	panic(stop{})
}

func need(features ...string) (ended string) {
	r := &recorder{}
	defer func() {
		if p := recover(); p != nil && p != any(stop{}) {
			panic(p)
		}
		ended = r.ended
	}()
	Need(r, features...)
	return r.ended
}

func TestNeed(t *testing.T) {
	const missing = "no-such-program-anywhere"
	t.Setenv(ExpectVariable, "")
	if got := need(missing); !strings.HasPrefix(got, "skip: needs "+missing) {
		t.Errorf("without a promise: %q, want a skip", got)
	}
	t.Setenv(ExpectVariable, "bwrap, "+missing)
	if got := need(missing); !strings.HasPrefix(got, "fail: ") {
		t.Errorf("with a promise: %q, want a failure", got)
	}
	t.Setenv(ExpectVariable, missing+"-else")
	if got := need(missing); !strings.HasPrefix(got, "skip: ") {
		t.Errorf("a promise of another name: %q, want a skip", got)
	}
}

func TestRootAndUser(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs user ids")
	}
	t.Setenv(ExpectVariable, "")
	if root := need("root") == ""; root != (os.Geteuid() == 0) {
		t.Errorf("root is %v as uid %d", root, os.Geteuid())
	}
	if os.Geteuid() != 0 {
		if got := need("user"); got != "" {
			t.Errorf("an ordinary user lacks an ordinary user: %s", got)
		}
	}
}
