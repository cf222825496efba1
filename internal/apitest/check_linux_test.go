package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1: check says what happens, also where a path is shown twice, stands for something
// else, or nothing is enforced.
func TestCheckAgrees(t *testing.T) {
	dir := workspace(t)
	for _, name := range []string{"f", "kept/prog"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	with := func(o ...policy.Option) policy.Policy { return policy.Workspace(dir).With(o...) }
	for _, tt := range []struct {
		name           string
		policy         policy.Policy
		action, target string
		allowed        bool
	}{
		{"shown read-only elsewhere", with(policy.WithBind(dir+"/f", "/opt/x", true)), "write", "f", true},
		{"read-only at its own path", with(policy.WithBind(dir+"/f", dir+"/f", true)), "write", "f", false},
		{"the null device", with(), "write", "/dev/null", true},
		{"a disk", with(), "read", "/dev/sda", false},
		{"a program of a persisted directory", with(policy.WithPersist(dir + "/kept")), "exec", "kept/prog", false},
		{"a program that a pattern hides", with(policy.HidePaths("**/prog")), "exec", "kept/prog", false},
		{"a missing hidden path of a remapped workspace", with(policy.Set("remap", "/workspace"), policy.HidePaths("?"+dir+"/secret")), "write", "secret", false},
		{"no backend", with(policy.WithBackend("none"), policy.HidePaths(dir+"/f")), "write", "f", true},
		{"a network with no backend", with(policy.WithBackend("none")), "connect", "example.com:443", true},
	} {
		d, err := open(t, tt.policy, dir).Check(plan.Op(tt.action), tt.target)
		if err != nil || d.Allowed != tt.allowed {
			t.Errorf("%s: %s %s: allowed %v by %s, %v; want %v", tt.name, tt.action, tt.target, d.Allowed, d.Rule, err, tt.allowed)
		}
	}
}

// N1: check says of the host's console what a command has in its place.
func TestCheckConsole(t *testing.T) {
	dir := workspace(t)
	d, err := open(t, policy.Workspace(dir), dir).Check("write", "/dev/console")
	if err != nil || d.Allowed || !strings.Contains(d.NoFix, "with a terminal of its own has that terminal there") {
		t.Errorf("%+v, %v", d, err)
	}
}

// N1 F8: no option opens git's settings, and what is said instead does not lead back to what was
// tried: check names git config, and a refused git config does not.
func TestGitSettingsAdvice(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	dir := workspace(t)
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file := filepath.Join(dir, ".git/config")
	s := open(t, policy.Workspace(dir).With(policy.AllowWrite(file)), dir)
	d, err := s.Check("write", file)
	if err != nil || d.Allowed || len(d.Fix) > 0 || !strings.Contains(d.Reason, "change it with `git config`") {
		t.Errorf("%+v, %v", d, err)
	}
	out, _ := s.Command(t.Context(), "git", "config", "core.sshCommand", "touch x").Capture()
	if out == nil || len(out.Denied) != 1 {
		t.Fatalf("%+v", out)
	}
	if r := out.Denied[0]; len(r.Fix) > 0 || !strings.Contains(r.Reason, "outside of the sandbox") || strings.Contains(r.Reason, "`git config`") {
		t.Errorf("%s", r.String())
	}
}

// N1: an option is suggested only if it helps.
func TestSuggestionsHelp(t *testing.T) {
	dir := workspace(t)
	if err := os.MkdirAll(dir+"/.git/hooks", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".git/objects", ".git/refs", "kept"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".git/HEAD", "f", "kept/f"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	readonly, err := policy.FromPreset("readonly")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name           string
		policy         policy.Policy
		action, target string
		grant          string
	}{
		{"a file", readonly, "write", "f", "--rw " + dir + "/f"},
		{"a hook", readonly, "write", ".git/hooks/pre-commit", ""},
		{"the same path has an option", policy.Workspace(dir).With(policy.HidePaths(dir + "/f")), "read", "f", ""},
	} {
		d, err := open(t, tt.policy, dir).Check(plan.Op(tt.action), tt.target)
		if err != nil || d.Allowed || runoption.Text(d.Fix...) != tt.grant {
			t.Errorf("%s: %+v, %v; want %q", tt.name, d, err, tt.grant)
		}
	}
}

// N1: no option for a path opens a file that is bound there read-only: it would show the
// file beneath.
func TestNoOptionOpensBind(t *testing.T) {
	testenv.AlsoAsUser(t)
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			testenv.Need(t, map[string]string{"native": "userns", "bwrap": "bwrap"}[backend])
			dir, other := workspace(t), workspace(t)
			for _, f := range []string{dir + "/target/f", other + "/f"} {
				if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f, nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			p := policy.Workspace(dir).With(policy.WithBackend(backend), policy.WithBind(other, dir+"/target", true))
			out, _ := open(t, p, dir).Command(t.Context(), "sh", "-c", "echo x >target/f").Capture()
			if out == nil || len(out.Denied) != 1 || out.Denied[0].Path != dir+"/target/f" {
				t.Fatalf("%+v", out)
			}
			if fix := out.Denied[0].Fix; len(fix) > 0 {
				t.Errorf("%v would open another file", fix)
			}
		})
	}
}

// N8: check judges a file by the name that it is bound to, as the broker does: what is
// shown as the settings of a git directory cannot be written.
func TestCheckKnowsBoundGitFiles(t *testing.T) {
	testenv.Need(t, "userns", "git")
	dir, other := workspace(t), workspace(t)
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"config", "notes", "hook"} {
		if err := os.WriteFile(filepath.Join(other, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := policy.Workspace(dir).With(policy.WithBackend("native"),
		policy.WithBind(other+"/config", dir+"/.git/config", false), policy.WithBind(other+"/notes", dir+"/notes", false),
		policy.AllowRead(dir+"/.git/hooks"), policy.WithBind(other+"/hook", dir+"/.git/hooks/new", false))
	s := open(t, p, dir)
	for file, want := range map[string]bool{"config": false, "notes": true, "hook": false} {
		d, err := s.Check("write", filepath.Join(other, file))
		if err != nil || d.Allowed != want {
			t.Errorf("check %s: %+v, %v", file, d, err)
		}
	}
	if out, err := s.Command(t.Context(), "sh", "-c", "echo x >notes; echo '[core] fsmonitor = /x' >.git/config").Capture(); err != nil || out.ExitCode == 0 {
		t.Errorf("the command wrote settings of git: %+v, %v", out, err)
	}
	if out, err := s.Command(t.Context(), "sh", "-c", "echo x >.git/hooks/new").Capture(); err != nil || out.ExitCode == 0 {
		t.Errorf("the command wrote a hook of git: %+v, %v", out, err)
	}
	if text, err := os.ReadFile(filepath.Join(other, "notes")); err != nil || string(text) != "x\n" {
		t.Errorf("notes: %q, %v", text, err)
	}
}
