package cloche_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// largeProject has more folders than are looked at before a command starts, one of
// them far down with a secret in it, and has been searched.
func largeProject(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ws := t.TempDir()
	writeFile(t, ws+"/.gitignore", "*.log\n")
	writeFile(t, ws+"/packages/part00/module0000/deep/.env", "KEY=topsecret")
	writeFile(t, ws+"/packages/part01/module0001/deep/.env", "PUBLIC=shared")
	if out, err := exec.Command("sh", "-c", "cd "+ws+" && git init -q && git add packages/part01").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i := range 1400 {
		if err := os.MkdirAll(filepath.Join(ws, fmt.Sprintf("packages/part%02d/module%04d/deep", i%30, i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // so that the folders are settled
	for range 2 {
		s := hiddenProject(t, "native", ws, cloche.Deferred())
		if out, r := sh(t, s, "cat packages/part00/module0000/deep/.env; cat packages/part01/module0001/deep/.env"); strings.Contains(out, "topsecret") || !strings.Contains(out, "shared") {
			t.Fatalf("%s, %+v", out, r)
		}
		s.Close()
	}
	return ws
}

// N9 N1: in a large tree a file that is new in a folder which was not looked at is
// refused by its name, with a record whose suggestion works, and the plan says that
// this is no wall. What the command makes is its own, what git has is shown, and what
// was found once stays hidden.
func TestLateFilesAreRefused(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	ws := largeProject(t)
	late := filepath.Join(ws, "packages/part29/module1379/deep/.env")
	writeFile(t, late, "KEY=topsecret")
	time.Sleep(50 * time.Millisecond)
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			if backend == "bwrap" {
				testenv.Need(t, "bwrap")
			}
			s := hiddenProject(t, backend, ws, cloche.Deferred())
			out, r := sh(t, s, "cat "+late+" packages/part00/module0000/deep/.env; cat packages/part01/module0001/deep/.env; echo mine > packages/part29/module0029/.env && cat packages/part29/module0029/.env && rm packages/part29/module0029/.env")
			if strings.Contains(out, "topsecret") || !strings.Contains(out, "shared") || !strings.Contains(out, "mine") {
				t.Fatalf("the command says %q", out)
			}
			d := deniedAt(r, late)
			if d == nil || d.Op != plan.OpRead || d.Rule != "paths.hide_found" || d.Subject != "**/.env" || runoption.Text(d.Fix()...) != "--ro "+late {
				t.Fatalf("the records are %+v", r.Denied)
			}
			if !noticed(r.Notices, "were not looked at", "which a program can avoid", "preset dotenv") {
				t.Errorf("the notices are %v", r.Notices)
			}
			p := policy.Workspace(ws).With(policy.WithBackend(backend), policy.AllowRead(strings.TrimPrefix(runoption.Text(d.Fix()...), "--ro ")))
			granted, err := cloche.Open(t.Context(), p, cloche.WithWorkspace(ws))
			if err != nil {
				t.Fatal(err)
			}
			defer granted.Close()
			if out, _ := sh(t, granted, "cat "+late); out != "KEY=topsecret" {
				t.Errorf("with the grant: %q", out)
			}
		})
	}
}

func deniedAt(r *cloche.Result, path string) *cloche.Denial {
	for i := range r.Denied {
		if r.Denied[i].Path == path {
			return &r.Denied[i]
		}
	}
	return nil
}

func noticed(all []plan.Notice, words ...string) bool {
	for _, n := range all {
		found := true
		for _, w := range words {
			found = found && strings.Contains(n.Text, w)
		}
		if found {
			return true
		}
	}
	return false
}
