package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// N10 F14: what a rule hides stays hidden when the host replaces it, and is
// hidden when it comes into being.
func TestWarmMasksFollow(t *testing.T) {
	testenv.Need(t, "userns")
	for name, mode := range warmModes {
		t.Run(name, func(t *testing.T) {
			dir := workspace(t)
			secret, later, folder := filepath.Join(dir, "secret"), filepath.Join(dir, "later"), filepath.Join(dir, "folder")
			write := func(p string) {
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte("SECRET"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(secret)
			write(folder + "/key")
			s := openWarm(t, dir, mode, policy.HidePaths(secret, folder), func(p *policy.Policy) {
				p.Paths = append(p.Paths, policy.PathRule{Path: later, Access: policy.Hidden, Optional: true, Origin: policy.Origin{Layer: policy.LayerCommand}})
			})
			look := func(when string) {
				t.Helper()
				if r := capture(t, s, "cat secret later folder/key; true"); strings.Contains(string(r.Stdout), "SECRET") {
					t.Errorf("%s: the command reads %q", when, r.Stdout)
				}
			}
			look("at first")
			write(secret + ".new")
			if err := os.Rename(secret+".new", secret); err != nil {
				t.Fatal(err)
			}
			look("after it was replaced")
			write(later)
			look("after another came into being")
			if err := os.Rename(folder, folder+".old"); err != nil {
				t.Fatal(err)
			}
			write(folder + "/key")
			look("after its folder was moved away")
		})
	}
}

// N10 C4: a program outside of what the policy shows can be started.
func TestWarmReachesProgram(t *testing.T) {
	eachWarm(t, func(t *testing.T, s *cloche.Session, _ string) {
		for _, name := range []string{"one", "two"} {
			tool := filepath.Join(workspace(t), name) // in /tmp, of which the command has its own
			if err := os.WriteFile(tool, []byte("#!/bin/sh\necho "+name+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			r, err := s.Command(t.Context(), tool).Capture()
			if err != nil || string(r.Stdout) != name+"\n" {
				t.Errorf("%s: %v, %s", name, err, brief(r))
			}
		}
	})
}

// N10: rules that depend on a variable or on the working folder follow them.
func TestWarmFollowsVariables(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	for _, sub := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, sub, "own", "entry"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := openWarm(t, dir, cloche.WithWarm(), policy.HidePaths("?${WHICH:-/nowhere}", "?cwd/own"))
	hidden := func(c *cloche.Cmd, what string) {
		t.Helper()
		// Root may list the empty folder that covers it.
		if r, err := c.Capture(); err != nil || len(r.Stdout) > 0 {
			t.Errorf("%s is shown: %v, %q", what, err, r.Stdout)
		}
	}
	if r := capture(t, s, "ls a/own"); string(r.Stdout) != "entry\n" {
		t.Fatal(brief(r))
	}
	for _, sub := range []string{"a", "b", "a"} {
		c := s.Command(t.Context(), "ls", sub)
		c.Env = append(os.Environ(), "WHICH="+filepath.Join(dir, sub))
		hidden(c, sub)
		c = s.Command(t.Context(), "ls", "own")
		c.Dir = filepath.Join(dir, sub)
		hidden(c, "own in "+sub)
	}
}
