package apitest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/hook"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// hostile is a program that leaves a mark outside when it is executed.
func hostile(mark string) string { return "#!/bin/sh\necho ran > '" + mark + "'\n" }

// putProgram copies a program.
func putProgram(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// L6: a bwrap that commands can replace is not executed, neither to run a command nor to
// see whether it works, however the path leads there.
func TestBwrapThatCommandsCanReplace(t *testing.T) {
	testenv.Need(t, "bwrap")
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]func(ws, outside string) string{
		"in the workspace":            func(ws, _ string) string { return filepath.Join(ws, "bwrap") },
		"below it":                    func(ws, _ string) string { return filepath.Join(ws, "tools", "bin", "bwrap") },
		"in another writable folder":  func(_, outside string) string { return filepath.Join(outside, "rw", "bwrap") },
		"behind a link in it":         func(ws, outside string) string { return linkTo(t, ws, filepath.Join(outside, "bwrap")) },
		"behind a link to it":         func(ws, outside string) string { return linkTo(t, outside, filepath.Join(ws, "bwrap")) },
		"where everybody may replace": func(_, outside string) string { return filepath.Join(outside, "open", "bwrap") },
	} {
		t.Run(name, func(t *testing.T) {
			ws, outside := workspace(t), workspace(t)
			for _, dir := range []string{"rw", "open"} {
				if err := os.Mkdir(filepath.Join(outside, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(outside, "open"), 0o777); err != nil {
				t.Fatal(err)
			}
			mark := filepath.Join(outside, "mark")
			path := place(ws, outside)
			target, err := filepath.EvalSymlinks(path)
			if err != nil {
				target = path
			}
			p := policy.Workspace(ws).With(policy.AllowWrite(filepath.Join(outside, "rw")))
			p.Backend.Name, p.Backend.BwrapPath = "bwrap", path
			run := func() error {
				s := open(t, p, ws)
				_, _, _ = s.Backend()
				return s.Command(t.Context(), "/bin/true").Run()
			}
			putProgram(t, real, target)
			var refused *cloche.UnavailableError
			if err := run(); !errors.As(err, &refused) {
				t.Errorf("a good one: %v", err)
			}
			// What an earlier command left there.
			if err := os.WriteFile(target, []byte(hostile(mark)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := run(); !errors.As(err, &refused) {
				t.Errorf("a replaced one: %v", err)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("the program of the command ran outside")
			}
			// The control: it would have.
			_ = exec.Command(path, "--version").Run()
			if _, err := os.Stat(mark); err != nil {
				t.Error("the hostile program does nothing")
			}
		})
	}
	t.Run("of the user's own, elsewhere", func(t *testing.T) {
		ws, outside := workspace(t), workspace(t)
		path := filepath.Join(outside, "bwrap")
		putProgram(t, real, path)
		p := policy.Workspace(ws)
		p.Backend.Name, p.Backend.BwrapPath = "bwrap", path
		if err := open(t, p, ws).Command(t.Context(), "/bin/true").Run(); err != nil {
			t.Error(err)
		}
	})
}

// linkTo makes a link in a folder to a file that is made later.
func linkTo(t *testing.T, dir, target string) string {
	t.Helper()
	if err := os.WriteFile(target, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link-to-bwrap")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// L6: a hook that commands can replace decides nothing, and no command is started
// that could replace it.
func TestHookThatCommandsCanReplace(t *testing.T) {
	ws, outside := workspace(t), workspace(t)
	mark := filepath.Join(t.TempDir(), "mark")
	program := filepath.Join(outside, "hook")
	if err := os.WriteFile(program, []byte(hostile(mark)), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := hook.New(program, ws)
	if err != nil {
		t.Fatal(err)
	}
	ask := cloche.WithAsk(grant.Options{Approvers: []grant.Approver{h}, Timeout: time.Minute})
	s := open(t, policy.Workspace(ws).With(policy.AllowWrite(outside)), ws, ask)
	if err := s.Command(t.Context(), "/bin/sh", "-c", "cat /root/x > /etc/x").Run(); err == nil || !strings.Contains(err.Error(), "hook") {
		t.Errorf("the command ran: %v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the hook ran")
	}
}

// L6: the caller's own program stays as it is in a folder that commands may write,
// and so does the folder around it.
func TestOwnProgramInWorkspace(t *testing.T) {
	for backend, needs := range map[string]string{"native": "userns", "bwrap": "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			testenv.Need(t, needs)
			ws := workspace(t)
			own := filepath.Join(ws, "bin", "cloche")
			putProgram(t, "/bin/true", own)
			before, err := os.ReadFile(own)
			if err != nil {
				t.Fatal(err)
			}
			p := policy.Workspace(ws)
			p.Backend.Name = backend
			s := open(t, p, ws, cloche.WithOwnPrograms(own))
			c := s.Command(t.Context(), "/bin/sh", "-c", "echo x > bin/cloche; rm -f bin/cloche; mv bin away; echo y > new && mv new bin/cloche; echo z > ok")
			c.Dir = ws
			_ = c.Run()
			if after, err := os.ReadFile(own); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the program was changed: %v", err)
			}
			if _, err := os.Stat(filepath.Join(ws, "ok")); err != nil {
				t.Errorf("the command did not run: %v", err)
			}
		})
	}
}
