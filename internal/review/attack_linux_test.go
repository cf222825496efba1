package review

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// find returns the change at a path.
func find(t *testing.T, list []*Change, path string) *Change {
	t.Helper()
	i := slices.IndexFunc(list, func(c *Change) bool { return c.Path == path })
	if i < 0 {
		t.Fatalf("there is no change at %s in %s", path, lines(list))
	}
	return list[i]
}

// N5: what the host changed since is a conflict, and is not overwritten; what it changed before a later command began is none.
func TestConflicts(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `for f in edited replaced gone kept deleted touched later; do echo $f > $f; done; mkdir dir`)
	l.inside(`for f in edited replaced gone kept touched; do echo mine >> $f; done; rm deleted; echo mine > both; echo mine > dir/new`)
	l.shell(l.ws, `echo theirs >> edited; echo theirs > r; mv r replaced; rm gone; echo theirs > deleted; echo theirs > both; echo theirs > later; touch -d 2001-01-01 edited`)
	l.inside(`echo mine >> later`)
	list := l.list()
	for path, want := range map[string]bool{
		"edited": true, "replaced": true, "gone": true, "kept": false, "deleted": true, "both": true, "dir/new": false, "later": false, "touched": false,
	} {
		if c := find(t, list, path); (c.Conflict != "") != want {
			t.Errorf("%s: conflict %q, want one: %t", path, c.Conflict, want)
		}
	}
	before := l.shell(l.ws, "cat edited replaced deleted both")
	out := l.apply(Options{})
	if len(out.Conflicts) != 5 || len(out.Failed) > 0 {
		t.Errorf("conflicts %s, failures %v", lines(out.Conflicts), out.Failed)
	}
	if now := l.shell(l.ws, "cat edited replaced deleted both"); now != before {
		t.Errorf("conflicts were overwritten: %s", now)
	}
	if out := l.apply(Options{Theirs: true}); !out.All() {
		t.Errorf("with theirs: %v", out.Failed)
	}
	if now := l.shell(l.ws, "cat edited replaced both gone; ls"); strings.Contains(now, "theirs") || strings.Contains(now, "deleted") || !strings.Contains(now, "gone") {
		t.Errorf("with theirs: %s", now)
	}
	// What an apply changed is no change of the host's.
	l.inside(`echo again >> edited; rm kept; echo x > dir/new`)
	for _, c := range l.list() {
		if c.Conflict != "" {
			t.Errorf("after the apply %s has the conflict %s", c.Path, c.Conflict)
		}
	}
}

// A link of the host in the way is not followed, wherever it appears.
func TestLinksAreNotFollowed(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `mkdir -p a/b c; echo old > a/b/f; echo old > c/f; echo old > g; echo old > h`)
	outside := filepath.Join(l.dir, "outside")
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.WriteFile(outside+"/f", []byte("outside"), 0o644))
	must(t, os.WriteFile(outside+"/new", []byte("outside"), 0o644))
	l.inside(`echo mine > a/b/f; echo mine > a/b/new; echo mine > c/f; rm g; chmod 777 h; mkdir c/d; echo mine > c/d/x`)
	l.shell(l.ws, `rm -r a/b c; ln -s `+outside+` a/b; ln -s `+outside+` c; rm g h; ln -s `+outside+`/f g; ln -s `+outside+`/f h`)
	l.apply(Options{Theirs: true})
	if now := l.shell(outside, "cat f new; ls; stat -c %a f"); now != "outsideoutside"+"f\nnew\n644\n" {
		t.Errorf("the apply changed files outside: %s", now)
	}
}

// N5: a folder that is exchanged for a link all the time never leads an apply out.
func TestRacingLinks(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `mkdir -p a; for i in $(seq 50); do echo old > a/$i; done`)
	outside := filepath.Join(l.dir, "outside")
	l.shell(l.dir, `mkdir outside; for i in $(seq 50); do echo outside > outside/$i; done`)
	l.inside(`for i in $(seq 50); do echo mine > a/$i; done; for i in $(seq 50 80); do echo mine > a/$i; done`)
	must(t, os.Symlink(outside, l.ws+"/link"))
	before := l.shell(outside, treeScript)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, l.ws+"/link", unix.AT_FDCWD, l.ws+"/a", unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 10 {
		r := l.resume()
		_, _ = r.Apply(Options{Theirs: true}) // most of it fails
		_, _ = r.Undo()
		must(t, r.Close())
	}
	close(stop)
	<-stopped
	differ(t, "outside", l.shell(outside, treeScript), before)
}

// What a command leaves to hang, fill or mislead a reader.
func TestHostileUpper(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo f > file; echo s > sparse; echo d > closed; mkdir -p readable/below; echo x > readable/below/x`)
	l.inside(`
rm file; mkfifo file; mkfifo pipe; truncate -s 4T huge; rm sparse; truncate -s 3T sparse
echo mine > closed; chmod 000 closed; mkdir shut; echo in > shut/in; chmod 000 shut; chmod 000 readable
touch $(printf 'n%.0s' $(seq 255)); echo linked > l1; ln l1 l2; echo run > setid; chmod 6755 setid
d=deep; mkdir deep; cd deep; for i in $(seq 300); do mkdir d; cd d; done; echo bottom > f`)
	began := time.Now()
	list := l.list()
	if took := time.Since(began); took > testenv.Patience {
		t.Errorf("the list took %v", took)
	}
	for path, want := range map[string]string{"file": Pipe, "pipe": Pipe} {
		if c := find(t, list, path); c.Type != want || c.NotCarried == "" {
			t.Errorf("%s: %+v", path, c)
		}
	}
	find(t, list, "shut/in")
	if !slices.ContainsFunc(list, func(c *Change) bool {
		return strings.HasPrefix(c.Path, "deep/d/") && strings.Contains(c.NotCarried, "deep")
	}) {
		t.Error("what is too deep is not named")
	}
	if len(find(t, list, "setid").Notes) == 0 || len(find(t, list, "l1").Notes) == 0 {
		t.Error("set-id bits and hard links have no note")
	}
	out := l.apply(Options{Want: func(abs string) bool { return !strings.Contains(abs, "/deep") }})
	if len(out.Failed) > 0 {
		t.Errorf("failed: %v", out.Failed)
	}
	got := l.shell(l.ws, `stat -c '%n %a %F' closed setid shut readable; stat -c '%s %b' huge sparse; cat l1 l2; test ! -p pipe; cat file; chmod 700 shut; cat shut/in`)
	const want = "closed 0 regular file\nsetid 755 regular file\nshut 0 directory\nreadable 0 directory\n4398046511104 0\n3298534883328 0\nlinked\nlinked\nf\nin\n"
	if got != want {
		t.Errorf("after the apply:\n%s\nwant:\n%s", got, want)
	}
	l.shell(l.ws, "chmod 700 readable closed")
	l.discard(nil)
	if left, _ := filepath.Glob(l.resumeFile("*")); len(left) > 0 {
		if left, _ := filepath.Glob(l.resumeFile("layers/0/upper/*")); len(left) > 0 {
			t.Errorf("the discard left %v", left)
		}
	}
}

// A git directory is one unit, and what git runs needs its own yes, under any name.
func TestGitDirectory(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "git")
	l := newLab(t, `git init -q .; git config user.email a@b; git config user.name n; echo 1 > f; git add f; git commit -qm one`)
	l.inside(`echo 2 > f; git commit -qam two; echo x > loose`)
	list := l.list()
	if c := find(t, list, "loose"); c.Unit != "" {
		t.Errorf("loose: %+v", c)
	}
	n := 0
	for _, c := range list {
		if c.Unit == ".git" {
			n++
			if c.Protected != "" {
				t.Errorf("a commit needs a yes: %s: %s", c.Path, c.Protected)
			}
		}
	}
	if n < 4 {
		t.Fatalf("the commit changed %s", lines(list))
	}
	l.apply(Options{Want: under(l.ws, ".git/HEAD", ".git/logs/HEAD")})
	if got := l.shell(l.ws, `git log --oneline | wc -l; git fsck 2>&1 | grep -c missing || true`); got != "2\n0\n" {
		t.Errorf("a part of the git directory was applied: %s", got)
	}
	l.inside(`printf '[alias]\nx = !id\n' >> .git/config; mkdir -p .git/hooks sub; echo id > .git/hooks/pre-commit; git commit -q --allow-empty --no-verify -m three
git init -q --bare bare; echo id > bare/hooks/update; echo 'gitdir: /tmp' > sub/.git`)
	out := l.apply(Options{})
	if now := l.shell(l.ws, `git log --oneline | wc -l; cat .git/config; ls bare .git/hooks sub || true`); strings.Contains(now, "alias") || strings.Contains(now, "pre-commit\n") || strings.Contains(now, "update\n") || !strings.HasPrefix(now, "2\n") {
		t.Errorf("protected files were applied: %s", now)
	}
	for _, path := range []string{".git/config", ".git/hooks/pre-commit", ".git/refs/heads/master", "bare/hooks/update", "bare/config", "sub/.git"} {
		if c := find(t, out.Protected, path); c.Protected == "" {
			t.Errorf("%s: %+v", path, c)
		}
	}
	if out := l.apply(Options{Allow: under(l.ws, ".git/config")}); len(out.Applied) > 0 {
		t.Errorf("a part of the git directory was allowed and applied: %s", lines(out.Applied))
	}
	if out := l.apply(Options{Allow: under(l.ws, ".git", "bare", "sub")}); !out.All() {
		t.Errorf("with a yes: %s, %v", lines(out.Protected), out.Failed)
	}
}

// A root that is a file is a copy, and is applied like any other.
func TestFileRoot(t *testing.T) {
	testenv.AlsoAsUser(t)
	dir := t.TempDir()
	file := dir + "/settings"
	must(t, os.WriteFile(file, []byte("old"), 0o640))
	s := Open(dir + "/state")
	change := func(text string) {
		r, err := s.Begin(dir, "f", []string{file})
		must(t, err)
		must(t, os.WriteFile(r.Layers()[0].Upper, []byte(text), 0o600))
		must(t, r.Close())
	}
	check := func(want string, apply func(*Review) (*Outcome, error), all bool) {
		t.Helper()
		r, err := s.Resume(dir, "f")
		must(t, err)
		defer r.Close()
		out, err := apply(r)
		must(t, err)
		text, err := os.ReadFile(file)
		if err != nil || string(text) != want || out.All() != all {
			t.Errorf("%q, %v, %+v; want %q", text, err, out, want)
		}
	}
	apply := func(r *Review) (*Outcome, error) { return r.Apply(Options{}) }
	check0, err := s.Begin(dir, "f", []string{file})
	must(t, err)
	must(t, check0.Close())
	check("old", apply, true) // nothing changed
	change("new")
	check("new", apply, true)
	check("old", (*Review).Undo, true)
	check("new", apply, true)
	change("mine")
	must(t, os.WriteFile(file, []byte("theirs"), 0o640))
	check("theirs", apply, false)
	check("mine", func(r *Review) (*Outcome, error) { return r.Apply(Options{Theirs: true}) }, true)
}

// The host's file is changed between the list and the exchange: it stays.
func TestChangedMeanwhile(t *testing.T) {
	l := newLab(t, `for i in $(seq 100); do echo old > $i; done`)
	l.inside(`for i in $(seq 100); do echo mine > $i; done`)
	stop, stopped := make(chan struct{}), make(chan map[string]bool)
	go func() {
		wrote := map[string]bool{}
		defer func() { stopped <- wrote }()
		for n := 1; ; n = n%100 + 1 {
			select {
			case <-stop:
				return
			default:
			}
			// As an editor saves: a new file in the place of the one that it has read.
			name := filepath.Join(l.ws, stageName(n))
			if text, err := os.ReadFile(name); err != nil || string(text) != "old\n" {
				continue
			}
			if os.WriteFile(name+".tmp", []byte("theirs\n"), 0o644) == nil && os.Rename(name+".tmp", name) == nil {
				wrote[stageName(n)] = true
			}
		}
	}()
	r := l.resume()
	out, err := r.Apply(Options{})
	close(stop)
	wrote := <-stopped
	must(t, err)
	must(t, r.Close())
	for _, c := range out.Applied {
		text, _ := os.ReadFile(c.Abs())
		kept, _ := filepath.Glob(l.resumeFile("applied/*"))
		if string(text) != "mine\n" && !wrote[c.Path] {
			t.Errorf("%s is %q, of %d kept", c.Path, text, len(kept))
		}
	}
	for _, c := range append(out.Conflicts, failures(out)...) {
		if text, _ := os.ReadFile(c.Abs()); string(text) != "theirs\n" {
			t.Errorf("%s was left, and is %q", c.Path, text)
		}
	}
}

func failures(out *Outcome) (list []*Change) {
	for _, f := range out.Failed {
		list = append(list, f.Change)
	}
	return list
}
