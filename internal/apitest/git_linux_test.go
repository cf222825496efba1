package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/gitguard/gitscripts"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
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
				testenv.Need(t, slices.Concat(needs, s.Needs, []string{"git"})...)
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

// N8: what the user's own git settings run from the workspace is protected too:
// folders of hooks also if they do not exist yet.
func TestGitSettingsSinks(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	ws := t.TempDir()
	for _, args := range [][]string{{"init", "-q", ws}, {"-C", ws, "config", "core.hooksPath", "my-hooks"}, {"-C", ws, "config", "core.fsmonitor", "./tools/watch"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.Mkdir(filepath.Join(ws, "tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, "tools/watch"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := open(t, policy.Workspace(ws), ws).Command(t.Context(), "sh", "-c", "mkdir my-hooks; echo x > tools/watch; mv tools tolls; echo x > tools/other")
	cmd.Dir = ws
	r, err := cmd.Capture()
	if r == nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(ws, "tools/watch")); err != nil || len(text) != 0 {
		t.Errorf("tools/watch: %q, %v", text, err)
	}
	for name, want := range map[string]bool{"my-hooks": false, "tools/other": true} {
		if _, err := os.Lstat(filepath.Join(ws, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v\n%s", name, err, want, r.Stderr)
		}
	}
}

// N8: git settings that cannot be understood are not passed over in silence.
func TestGitSettingsUnreadable(t *testing.T) {
	ws := workspace(t)
	if err := os.Mkdir(filepath.Join(ws, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws, ".git/config"), []byte("[core\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	warns := func(n plan.Notice) bool {
		return n.Kind == plan.NoticeWarning && strings.Contains(n.Text, "may not be protected")
	}
	p, err := open(t, policy.Workspace(ws), ws).Command(t.Context(), "true").Plan()
	if err != nil || !slices.ContainsFunc(p.Notices, warns) {
		t.Errorf("%v, notices %+v", err, p.Notices)
	}
}
