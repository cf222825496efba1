package apitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// foundProject makes a repository with .env files, ignored and tracked.
func foundProject(t *testing.T) string {
	t.Helper()
	ws := t.TempDir()
	for name, text := range map[string]string{
		".gitignore": ".env*\n", "main.go": "package main\n", "pkg/a/.env": "KEY=topsecret\n", "pkg/a/code.js": "x\n", "pkg/b/.env.local": "KEY=topsecret\n",
		".env": "KEY=topsecret\n", "pkg/c/.env": "PUBLIC=shared\n", "pkg/a/.env.example": "KEY=\n", "node_modules/m/.env": "KEY=fetched\n",
	} {
		writeFile(t, filepath.Join(ws, name), text)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"add", "-f", "pkg/c/.env"}, {"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = ws
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return ws
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// hiddenProject opens a session in such a project, with a cache of its own.
func hiddenProject(t *testing.T, backend, ws string, opts ...cloche.Option) *cloche.Session {
	t.Helper()
	// Not strict: as root, bwrap has a gap with wrapped commands.
	p := policy.Workspace(ws).With(policy.WithBackend(backend), policy.WithRequire(policy.BestEffort))
	s, err := cloche.Open(t.Context(), p, append(opts, cloche.WithWorkspace(ws))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func sh(t *testing.T, s *cloche.Session, script string) (string, *cloche.Result) {
	t.Helper()
	r, err := s.Command(t.Context(), "sh", "-c", script).Capture()
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr), r
}

// L6 F14: .env files of a project are hidden wherever they are, whether
// anybody asked for it or not; what a command makes is its own.
func TestFoundFilesAreHidden(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "git")...)
			ws := foundProject(t)
			s := hiddenProject(t, name, ws)
			out, _ := sh(t, s, `cat .env pkg/a/.env pkg/b/.env.local; grep -r topsecret . ; tar cf - . 2>/dev/null | grep -c topsecret`)
			if strings.Contains(out, "KEY=topsecret") || strings.Contains(out, "matches") {
				t.Errorf("it came out:\n%s", out)
			}
			out, r := sh(t, s, `cat pkg/c/.env pkg/a/.env.example node_modules/m/.env && echo OWN=1 > pkg/.env && cat pkg/.env && mv pkg/a/code.js pkg/c/code.js && ln pkg/c/code.js pkg/b/linked && rm pkg/.env`)
			if want := "PUBLIC=shared\nKEY=\nKEY=fetched\nOWN=1\n"; out != want || !r.Success() {
				t.Errorf("it says %q, want %q", out, want)
			}
			out, r = sh(t, s, `echo x > pkg/a/.env; rm -f pkg/a/.env; mv pkg/a pkg/x; mv pkg moved; ln pkg/a/.env got; echo end`)
			if !strings.HasPrefix(out, "end\n") || len(r.Denied) == 0 || r.Denied[0].Rule != "paths.hide_found" {
				t.Errorf("it says %q, refused %v", out, r.Denied)
			}
			if text, err := os.ReadFile(ws + "/pkg/a/.env"); err != nil || string(text) != "KEY=topsecret\n" {
				t.Errorf("the file is %q, %v", text, err)
			}
		})
	}
}

// N8: git sees no change, inside and outside.
func TestFoundFilesAndGit(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "git")...)
			ws := foundProject(t)
			s := hiddenProject(t, name, ws)
			const look = `git status --porcelain && git add -A && git status --porcelain && git stash -q && git diff --exit-code`
			if out, r := sh(t, s, look); out != "" && out != "No local changes to save\n" || !r.Success() {
				t.Errorf("inside it says %q, %d", out, r.ExitCode)
			}
			cmd := exec.Command("git", "status", "--porcelain")
			cmd.Dir = ws
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("outside it says %q, %v", out, err)
			}
		})
	}
}

// L6: a tracked file with a change of its own is hidden: the change is in no
// repository.
func TestFoundFileWithOwnChange(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	ws := foundProject(t)
	s := hiddenProject(t, "native", ws)
	writeFile(t, ws+"/pkg/c/.env", "PUBLIC=topsecret\n")
	if out, _ := sh(t, s, "cat pkg/c/.env"); strings.Contains(out, "topsecret") {
		t.Errorf("it says %q", out)
	}
	// An entry of the index that the command makes does not open the file.
	if out, _ := sh(t, s, `git update-index --add --cacheinfo 100644,$(echo guess | git hash-object -w --stdin),pkg/a/.env; git commit -qam y; echo done`); !strings.Contains(out, "done") {
		t.Errorf("it says %q", out)
	}
	if out, _ := sh(t, s, "cat pkg/a/.env pkg/c/.env"); strings.Contains(out, "topsecret") {
		t.Errorf("then it says %q", out)
	}
}

// L6 N10: a file that the host makes is hidden from the next command of a warm
// session, and one that it removes is no longer in the way.
func TestFoundFilesWarm(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock", "git")
	for name, warm := range map[string]cloche.Option{"warm": cloche.WithWarm(), "fast": cloche.WithWarmFast()} {
		t.Run(name, func(t *testing.T) {
			ws := foundProject(t)
			s := hiddenProject(t, "native", ws, warm)
			for i := range 5 {
				dir := fmt.Sprintf("new%d/deep", i)
				writeFile(t, filepath.Join(ws, dir, ".env"), "KEY=topsecret\n")
				if out, _ := sh(t, s, "mv pkg/a pkg/z; mv new"+fmt.Sprint(i)+" z; cat "+dir+"/.env pkg/a/.env pkg/z/.env z/deep/.env"); strings.Contains(out, "topsecret") {
					t.Fatalf("round %d: it says %q", i, out)
				}
				if err := os.Remove(filepath.Join(ws, dir, ".env")); err != nil {
					t.Fatal(err)
				}
				if out, _ := sh(t, s, "echo mine > "+dir+"/.env && cat "+dir+"/.env && rm "+dir+"/.env"); out != "mine\n" {
					t.Fatalf("round %d: then it says %q", i, out)
				}
			}
		})
	}
}

// L6: the same for a command that the caller starts by itself.
func TestFoundFilesWrapped(t *testing.T) {
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "git")...)
			ws := foundProject(t)
			s := hiddenProject(t, name, ws)
			cmd := exec.Command("/bin/sh", "-c", "mv pkg/a pkg/z; cat pkg/a/.env pkg/z/.env; cat main.go")
			cmd.Dir = ws
			if err := s.Wrap(cmd); err != nil {
				t.Fatal(err)
			}
			if out, err := cmd.Output(); err != nil || string(out) != "package main\n" {
				t.Errorf("it says %q, %v", out, err)
			}
		})
	}
}

// L6: an editor that replaces a file does not lift its mask for the next command.
func TestFoundFileReplaced(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	ws := foundProject(t)
	s := hiddenProject(t, "native", ws, cloche.WithWarm())
	for i := range 3 {
		writeFile(t, ws+"/pkg/a/new", fmt.Sprintf("KEY=topsecret%d\n", i))
		if err := os.Rename(ws+"/pkg/a/new", ws+"/pkg/a/.env"); err != nil {
			t.Fatal(err)
		}
		if out, _ := sh(t, s, "cat pkg/a/.env"); strings.Contains(out, "topsecret") {
			t.Fatalf("it says %q", out)
		}
	}
}

// L3: the masks are where the workspace is.
func TestFoundFilesRemapped(t *testing.T) {
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "git")...)
			ws := foundProject(t)
			p := policy.Workspace(ws).With(policy.WithBackend(name), policy.Set("remap", "/workspace"))
			s, err := cloche.Open(t.Context(), p, cloche.WithWorkspace(ws))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, r := sh(t, s, "cat /workspace/pkg/a/.env; cat "+ws+"/pkg/a/.env; cat /workspace/main.go")
			if out := string(r.Stdout); out != "package main\n" {
				t.Errorf("it says %q and %q", out, r.Stderr)
			}
		})
	}
}

// L6: a folder that a policy names, and that is not the workspace, is searched.
func TestFoundFilesOfNamedFolder(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	ws := foundProject(t)
	cmd := cloche.Command(t.Context(), policy.Workspace(ws).With(policy.WithBackend("native")), "cat", "pkg/a/.env", "main.go")
	cmd.Dir = ws
	if r, err := cmd.Capture(); err != nil || string(r.Stdout) != "package main\n" {
		t.Errorf("it says %+v, %v", r, err)
	}
}

// L6: hundreds of files are hidden like one, and folders with them stay usable.
func TestHundredsOfFoundFiles(t *testing.T) {
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, needs...)
			ws := t.TempDir()
			for i := range 300 {
				writeFile(t, fmt.Sprintf("%s/packages/p%d/.env", ws, i), "KEY=topsecret\n")
			}
			s := hiddenProject(t, name, ws)
			out, r := sh(t, s, `cat packages/*/.env 2>/dev/null; for p in packages/*; do echo x > $p/f || exit 1; done; mv packages/p1/f packages/p2/g && echo ok`)
			if out != "ok\n" || !r.Success() {
				t.Errorf("it says %q", out)
			}
		})
	}
}

// L6: the folder of the indexes is closed to commands.
func TestSearchIndexIsClosed(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "git")
	ws := foundProject(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	s := hiddenProject(t, "native", ws)
	sh(t, s, "true")
	if n, _ := filepath.Glob(cache + "/cloche/search/*"); len(n) != 1 {
		t.Fatalf("the indexes are %q", n)
	}
	if out, _ := sh(t, s, "ls "+cache+"/cloche; echo x > "+cache+"/cloche/search/y; echo end"); strings.Contains(out, "search\n") || !strings.HasPrefix(out, "end\n") {
		t.Errorf("it says %q", out)
	}
	if n, _ := filepath.Glob(cache + "/cloche/search/*"); len(n) != 1 {
		t.Errorf("then the indexes are %q", n)
	}
}

// L6: what is hidden, and why, is in the plan.
func TestFoundFilesExplained(t *testing.T) {
	testenv.Need(t, "git")
	s := hiddenProject(t, "auto", foundProject(t))
	var hidden, said int
	for _, e := range explained(s).Paths {
		if e.Found {
			hidden++
		}
	}
	for _, n := range explained(s).Notices {
		if n.Kind == plan.NoticeInfo && strings.Contains(n.Text, "pkg/c/.env") {
			said++
		}
	}
	if hidden != 3 || said != 1 {
		t.Errorf("%d files are hidden, %d are said not to be", hidden, said)
	}
}

// N9: a session tells what its search for files to hide comes to.
func TestSearched(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ws := t.TempDir()
	for i := range 700 {
		if err := os.MkdirAll(filepath.Join(ws, fmt.Sprintf("a%02d/b%03d", i%20, i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, ws+"/a00/b000/.env", "KEY=x")
	for range 2 {
		s := hiddenProject(t, "auto", ws, cloche.WithDeferredPlan())
		found, err := s.Searched()
		if err != nil || len(found) != 1 || found[0].Folders != 721 || len(found[0].Files) != 1 {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	p := policy.Workspace(ws)
	p.Disabled = true
	off, err := cloche.Open(t.Context(), p, cloche.WithWorkspace(ws))
	if err != nil {
		t.Fatal(err)
	}
	defer off.Close()
	if found, err := off.Searched(); err != nil || len(found) != 0 {
		t.Errorf("with no sandbox: %+v, %v", found, err)
	}
}

// L6 F14: no command starts before the search has ended, also where that goes on in
// several threads beside other work: what came into being since the last one is hidden in the next.
func TestFoundFilesInManyFolders(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ws := t.TempDir()
	for i := range 2400 { // for which a search has several threads
		if err := os.MkdirAll(filepath.Join(ws, fmt.Sprintf("packages/part%02d/module%03d", i%30, i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"packages/part00/module000/.env", "packages/part29/module2399/.env.local"} {
		s := hiddenProject(t, "native", ws, cloche.WithDeferredPlan())
		if _, r := sh(t, s, "true"); !r.Success() {
			t.Fatal("the command failed")
		}
		writeFile(t, filepath.Join(ws, name), "topsecret")
		for range 3 {
			s := hiddenProject(t, "native", ws, cloche.WithDeferredPlan())
			if out, _ := sh(t, s, "cat "+name+"; true"); strings.Contains(out, "topsecret") {
				t.Fatalf("file %d can be read", i)
			}
		}
	}
}
