package cloche_test

import (
	"os"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/gitguard/gitscripts"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// gitBackends are those that guard git directories.
var gitBackends = map[string][]string{"native": {"userns", "landlock"}, "bwrap": {"bwrap", "landlock"}}

// N8: whatever people and agents do with git works inside.
func TestGitWorks(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		for _, s := range gitscripts.Sessions {
			t.Run(name+"/"+s.Name, func(t *testing.T) {
				testenv.Need(t, append(needs, "git")...)
				t.Parallel()
				r := runGitScript(t, name, s)
				if !r.Success() {
					t.Errorf("it returned %d: %s%s\nrefused: %v", r.ExitCode, r.Stdout, r.Stderr, r.Denied)
				}
			})
		}
	}
}

// N8: whatever a command leaves behind, git outside runs nothing of it.
func TestGitRunsNothing(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		for _, s := range gitscripts.Attacks {
			t.Run(name+"/"+s.Name, func(t *testing.T) {
				testenv.Need(t, append(needs, "git")...)
				t.Parallel()
				runGitScript(t, name, s)
			})
		}
	}
}

// runGitScript runs a script inside and then does what a user would do outside.
func runGitScript(t *testing.T, backend string, s gitscripts.Script) *cloche.Result {
	t.Helper()
	base := t.TempDir()
	if err := s.Prepare(base); err != nil {
		t.Fatal(err)
	}
	ws := gitscripts.Workspace(base)
	p := policy.Workspace(ws).With(policy.WithBackend(backend), policy.ProtectPaths("**/.envrc"))
	argv := s.Argv(base)
	cmd := cloche.Command(t.Context(), p, argv[0], argv[1:]...)
	cmd.Dir = ws
	r, err := cmd.Capture()
	if r == nil {
		t.Fatal(err)
	}
	marked, err := s.Visit(base)
	if err != nil {
		t.Errorf("afterwards: %v\ninside: %s%s", err, r.Stdout, r.Stderr)
	}
	if marked {
		t.Errorf("git outside ran something of the command's\ninside: %s%s\nrefused: %v", r.Stdout, r.Stderr, r.Denied)
	}
	if _, err := os.Lstat(gitscripts.Mark(base)); err == nil && !marked {
		t.Error("the command itself left the mark")
	}
	return r
}
