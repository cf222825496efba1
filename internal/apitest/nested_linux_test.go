package apitest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/policy"
)

// nestedVariable has the workspace for TestNestedInner.
const nestedVariable = "CLOCHE_TEST_NESTED"

// innerReport is what the program inside found.
type innerReport struct {
	InForce, State string
	// What commands of sessions with other backends printed.
	Granting, Unconfined string
	Backend              string
	Err                  string
}

// N13: a cloche in a sandbox, whose policy grants everything that the outer one
// does not, gives nothing more; it can read the policy in force, and its state is
// elsewhere than that of the outer one.
func TestNestedOnlyTightens(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, need := range map[string]string{"native": "userns", "bwrap": "bwrap"} {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, need, "landlock")
			base := workspace(t)
			dir := filepath.Join(base, "ws")
			for _, d := range []string{dir, filepath.Join(base, "out")} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			secret := filepath.Join(dir, "secret")
			if err := os.WriteFile(secret, []byte("the secret"), 0o644); err != nil {
				t.Fatal(err)
			}
			p := policy.Workspace(dir).With(policy.HidePaths(secret), policy.WithBackend(name))
			c := open(t, p, dir).Command(t.Context(), os.Args[0], "-test.run=^TestNestedInner$")
			c.SetEnv(nestedVariable, dir)
			r, err := c.Capture()
			if err != nil || r.ExitCode != 0 {
				t.Fatalf("%v: %s", err, r.Stdout)
			}
			checkInner(t, r.Stdout, name, secret)
			for _, f := range []string{"beside", "out/x"} {
				if _, err := os.Stat(filepath.Join(base, f)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %v", f, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "inside")); err != nil {
				t.Error(err)
			}
		})
	}
}

func checkInner(t *testing.T, stdout []byte, name, secret string) {
	t.Helper()
	line, _, _ := strings.Cut(string(stdout), "\n")
	var in innerReport
	if err := json.Unmarshal([]byte(line), &in); err != nil || in.Err != "" {
		t.Fatalf("%v, %s: %s", err, in.Err, stdout)
	}
	if in.Backend != "landlock" {
		t.Errorf("the inner backend is %s", in.Backend)
	}
	for what, out := range map[string]string{"granting": in.Granting, "unconfined": in.Unconfined} {
		if strings.Contains(out, "the secret") || !strings.Contains(out, "done") {
			t.Errorf("%s: %s", what, out)
		}
	}
	for _, want := range []string{"sandbox " + name + "\n", "hidden " + secret + "\t# ", "variable " + nestedVariable + "\t# "} {
		if !strings.Contains(in.InForce, want) {
			t.Errorf("%q is not in the policy in force:\n%s", want, in.InForce)
		}
	}
	if strings.Contains(in.InForce, "-test.run") {
		t.Errorf("arguments are in the policy in force:\n%s", in.InForce)
	}
	if !strings.HasPrefix(in.State, "/tmp/cloche-") {
		t.Errorf("the inner state is in %s", in.State)
	}
}

// TestNestedInner is the program in the sandbox of TestNestedOnlyTightens.
func TestNestedInner(t *testing.T) {
	dir := os.Getenv(nestedVariable)
	if dir == "" {
		t.Skip("it is the inner program of TestNestedOnlyTightens")
	}
	var r innerReport
	defer func() { _ = json.NewEncoder(os.Stdout).Encode(r) }()
	dirs, err := machine.OwnDirs()
	if err != nil {
		r.Err = err.Error()
		return
	}
	r.State = dirs.State
	if r.InForce, err = cloche.InForce(); err != nil {
		r.Err = err.Error()
		return
	}
	const script = "cat secret; touch ../beside ../out/x; echo x >inside; echo done"
	p := policy.Workspace(dir).With(policy.AllowWrite(filepath.Dir(dir)), policy.AllowRead("?/", filepath.Join(dir, "secret")), policy.WithRequire(policy.BestEffort))
	for out, p := range map[*string]policy.Policy{&r.Granting: p, &r.Unconfined: p.With(policy.WithBackend("none"))} {
		s, err := cloche.Open(t.Context(), p, cloche.WithWorkspace(dir))
		if err != nil {
			r.Err = err.Error()
			return
		}
		result, err := s.Command(t.Context(), "sh", "-c", script).Capture()
		if err != nil {
			r.Err = err.Error()
			return
		}
		*out = string(result.Stdout)
		if result.Confined {
			r.Backend = result.Backend
		}
	}
}

// N13: a variable makes nobody believe that there is a sandbox.
func TestNotInForce(t *testing.T) {
	t.Setenv(resolve.SandboxVariable, "native")
	if text, err := cloche.InForce(); !errors.Is(err, os.ErrNotExist) || text != "" {
		t.Errorf("%q, %v", text, err)
	}
	if machine.Nested() {
		t.Error("this test runs in a sandbox, or a variable was believed")
	}
}

// L1: files that the host does not have are shown where the sandbox has a folder of its own,
// cannot be changed, and stand in for no file of the host or of cloche.
func TestWithFiles(t *testing.T) {
	testenv.AlsoAsUser(t)
	texts := map[string]string{"/run/cloche/x/.zshrc": "shown", wellknown.PolicyFile: "false", "/etc/passwd": "false", "/tmp/x": "false"}
	for name, need := range map[string]string{"native": "userns", "bwrap": "bwrap", "landlock": "landlock"} {
		for kind, options := range map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				testenv.Need(t, need, "landlock")
				dir := workspace(t)
				p := policy.Workspace(dir).With(policy.WithBackend(name), policy.WithRequire(policy.BestEffort))
				s := open(t, p, dir, append(options, cloche.WithFiles(texts))...)
				r, err := s.Command(t.Context(), "/bin/sh", "-c", `if cd /run/cloche/x; then cat .zshrc; for change in "rm -f .zshrc" "mv .zshrc y" "touch y" "chmod 777 .zshrc" "rmdir ../x"; do $change 2>/dev/null && echo "$change"; done
					echo x 2>/dev/null >> .zshrc && echo write; fi; grep -l false /etc/passwd `+wellknown.PolicyFile+` /tmp/x; true`).Capture()
				if err != nil {
					t.Fatal(err)
				}
				want := "shown"
				if name == "landlock" {
					want = ""
				}
				if got := string(r.Stdout); got != want {
					t.Errorf("%q: %s", got, r.Stderr)
				}
			})
		}
	}
}
