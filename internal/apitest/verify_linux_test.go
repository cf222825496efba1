package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/verify"
	"github.com/cloche-dev/cloche/policy"
)

// proberWord makes the test binary the prober of Session.Verify.
const proberWord = "cloche-verify-prober"

func init() {
	if len(os.Args) != 2 || os.Args[1] != proberWord {
		return
	}
	if err := cloche.RunProber(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func prober(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, proberWord}
}

// empty fails the test if something is in a folder.
func empty(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%s holds %v (%v)", dir, entries, err)
	}
}

// N7: the rules of a policy are tried, in a warm session too, and nothing is left.
func TestVerify(t *testing.T) {
	testenv.Need(t, "userns")
	for name, opts := range map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}, "fast": {cloche.WithWarmFast()}} {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			v, err := open(t, policy.Workspace(dir), dir, opts...).Verify(t.Context(), prober(t)...)
			if err != nil {
				t.Fatal(err)
			}
			if !v.OK() || v.Backend != "native" || v.Count(cloche.OutcomeHeld) < 30 || v.Count(cloche.OutcomeGap) != 0 {
				t.Errorf("the findings are %+v", v)
			}
			empty(t, dir)
			text, err := json.Marshal(v)
			if err != nil || !strings.Contains(string(text), `"rule":"paths.write","subject":"`+dir+`","outcome":"held"`) {
				t.Errorf("as JSON: %s (%v)", text, err)
			}
		})
	}
}

// N4 N7: a strict policy that cannot be enforced is not verified but refused.
func TestVerifyRefuses(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	user := policy.Workspace(dir).With(policy.WithNetwork(policy.NetworkUser), policy.WithBackend("landlock"))
	_, err := open(t, user, dir).Verify(t.Context(), prober(t)...)
	var gap *cloche.GapError
	var unavailable *cloche.UnavailableError
	if !errors.As(err, &gap) && !errors.As(err, &unavailable) {
		t.Errorf("a policy with gaps: %v", err)
	}
	_, err = open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir).Verify(t.Context(), prober(t)...)
	if !errors.Is(err, verify.ErrUnconfined) {
		t.Errorf("no sandbox: %v", err)
	}
	empty(t, dir)
}

// N7: a prober that is none, or does not finish, is an error, and nothing is left.
func TestVerifyErrors(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	s := open(t, policy.Workspace(dir), dir)
	for _, argv := range [][]string{nil, {"true"}, {"false"}, {"cat"}, {"sh", "-c", "kill -9 $$"}, {filepath.Join(dir, "absent")}} {
		if v, err := s.Verify(t.Context(), argv...); err == nil {
			t.Errorf("prober %q finds %+v", argv, v)
		}
		empty(t, dir)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Verify(ctx, "sleep", "60"); err == nil {
		t.Error("a prober that was canceled gives no error")
	}
	empty(t, dir)
}

// N4 N7: every gap that a run reports is one that verify counts.
func TestVerifyCountsEveryGap(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	dir := workspace(t)
	strict := policy.Workspace(dir)
	for name, p := range map[string]policy.Policy{
		"landlock":  strict.With(policy.WithBackend("landlock"), policy.WithRequire(policy.BestEffort)),
		"datagrams": strict.With(policy.AllowSocket(policy.Datagrams)),
	} {
		s := open(t, p, dir)
		result, err := s.Command(t.Context(), "true").Capture()
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Verify(t.Context(), prober(t)...)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Gaps) > 0 && v.Count(cloche.OutcomeGap) == 0 {
			t.Errorf("%s: verify counts no gap; a run has %v", name, result.Gaps)
		}
		for _, g := range result.Gaps {
			counted := slices.ContainsFunc(v.Findings, func(f cloche.Finding) bool {
				return f.Outcome == cloche.OutcomeGap && strings.HasPrefix(f.Rule, g.Rule) && strings.HasSuffix(f.Detail, g.Reason)
			})
			if !counted {
				t.Errorf("%s: the gap %s is in no finding", name, g.String())
			}
		}
	}
}
