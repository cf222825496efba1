package review

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N5: a folder above the root is exchanged for a link after the list: nothing is written where it leads.
func TestRootBehindLink(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo old > f`)
	l.shell(l.dir, `mkdir -p above evil/ws; mv ws above/ws; echo outside > evil/ws/f`)
	l.ws = filepath.Join(l.dir, "above/ws")
	l.inside(`echo mine > f; echo mine > new`)
	r := l.resume()
	defer r.Close()
	if _, err := r.List(nil, nil); err != nil {
		t.Fatal(err)
	}
	l.shell(l.dir, `mv above real; ln -s evil above`)
	root := r.meta.Roots[0]
	if _, _, err := r.trees(&root); err == nil {
		t.Error("another folder was opened")
	}
	var evil unix.Stat_t
	must(t, unix.Stat(l.dir+"/evil/ws", &evil))
	root.Dev, root.Ino = evil.Dev, evil.Ino
	if _, _, err := r.trees(&root); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a link: %v", err)
	}
	if out, err := r.Apply(Options{Theirs: true}); err != nil || len(out.Applied) > 0 || len(out.NotCarried) != 1 {
		t.Errorf("there was an apply: %+v, %v", out, err)
	}
	if got := l.shell(l.dir, `cd evil/ws; cat f; ls`); got != "outside\nf\n" {
		t.Errorf("behind the link: %s", got)
	}
}

// N5: a root that is a file is not copied from where a link leads.
func TestFileBehindLink(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/secret", 0o700))
	must(t, os.WriteFile(dir+"/secret/f", []byte("secret"), 0o600))
	must(t, os.Symlink("secret", dir+"/link"))
	s := Open(dir + "/state")
	r, err := s.Begin(dir, "f", []string{dir + "/link/f"})
	if err == nil {
		text, _ := os.ReadFile(r.Layers()[0].Upper)
		t.Errorf("the copy has %q", text)
		r.Close()
	}
}

// N5: a command takes the names that cloche itself uses. It changes nothing about what can be applied and discarded.
func TestOwnNamesTaken(t *testing.T) {
	testenv.AlsoAsUser(t)
	for _, script := range []string{`echo x > .cloche-review-new; echo x > new`, `mkdir -p .cloche-review-new/x new/x`, `ln -s / .cloche-review-new; ln -s / new`} {
		l := newLab(t, `mkdir -p in/dir in/shut; echo a > in/dir/a; echo b > in/dir/b; echo c > in/shut/c; echo d > in/shut/d; chmod 555 in/shut`)
		t.Cleanup(func() { _ = os.Chmod(l.ws+"/in/shut", 0o755) })
		l.inside(`rm in/dir/* && rmdir in/dir; chmod 755 in/shut; rm in/shut/*; rmdir in/shut; cd in; ` + script)
		want := l.within()
		if out := l.apply(Options{Want: under(l.ws, "in/dir/a")}); !out.All() || len(out.Applied) != 1 {
			t.Fatalf("%s: applied %v, failed %v", script, lines(out.Applied), out.Failed)
		}
		differ(t, "inside after an apply", l.within(), want)
		l.discard(under(l.ws, "in/shut/c"))
		if c := find(t, l.list(), "in/shut/d"); c.Kind != Deleted {
			t.Errorf("%s: %v", script, lines([]*Change{c}))
		}
	}
}

// N5: a review whose folder was replaced can be discarded, as its error says.
func TestDiscardOfReplacedRoot(t *testing.T) {
	testenv.AlsoAsUser(t)
	for _, undo := range []bool{false, true} {
		l := newLab(t, `echo old > f; echo old > g`)
		l.inside(`echo mine > f; echo mine > g`)
		if undo {
			l.apply(Options{Want: under(l.ws, "g")})
		}
		l.shell(l.dir, `mv ws gone; mkdir ws; echo other > ws/f`)
		r := l.resume()
		if list, err := r.List(nil, nil); err != nil || len(list) != 1 || !strings.Contains(list[0].NotCarried, "discard") {
			t.Errorf("the list: %s, %v", lines(list), err)
		}
		if _, err := r.Discard(nil); err != nil {
			t.Errorf("the discard: %v", err)
		}
		must(t, r.Close())
		if got := l.inside(`cat f; echo again > f`); got != "other\n" {
			t.Errorf("after the discard: %q", got)
		}
		if c := find(t, l.list(), "f"); c.Conflict != "" {
			t.Errorf("after the discard: %s", c.Conflict)
		}
	}
}

// N5: a discard that is killed leaves all changes or none: half of a folder that hides the host's would be a deletion.
func TestDiscardKilled(t *testing.T) {
	testenv.AlsoAsUser(t)
	for _, undo := range []bool{false, true} {
		l := newLab(t, `mkdir d; for i in 1 2 3; do echo $i > d/$i; done; echo g > g`)
		l.inside(`echo g2 > g; rm -r d; mkdir d; for i in 1 2 3; do echo new > d/$i; done; mkdir d/sub`)
		if undo {
			l.apply(Options{Want: under(l.ws, "g")})
		}
		before := lines(l.list())
		r := l.resume()
		old := r.Layers()[0].Upper
		if _, err := r.Discard(nil); err != nil {
			t.Fatal(err)
		}
		must(t, r.Close())
		if _, err := os.Lstat(old); err == nil {
			t.Error("the layer is at its place")
		}
		// What a killed one leaves of the layer belongs to no review, and goes.
		if undo {
			old = filepath.Join(filepath.Dir(old)+".discarded", "upper")
		}
		must(t, os.MkdirAll(old+"/d", 0o755))
		if !undo {
			if _, err := l.store.Resume(l.ws, DefaultName); !errors.Is(err, ErrNone) {
				t.Errorf("after the discard: %v", err)
			}
		} else if list := l.list(); len(list) > 0 {
			t.Errorf("after the discard of %s there are %s", before, lines(list))
		}
		l.inside(`test $(cat d/1) = 1`)
		if left, _ := filepath.Glob(l.resumeFile("layers/*")); len(left) != 1 {
			t.Errorf("layers: %v", left)
		}
	}
}

// N5: of a file that the host replaces while an apply does, the host's newest version stays.
func TestExchangeBack(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	ino := func(name string) uint64 {
		var st unix.Stat_t
		must(t, unix.Lstat(dir+"/"+name, &st))
		return st.Ino
	}
	write := func(name string) {
		must(t, os.WriteFile(dir+"/"+name+".tmp", []byte(name), 0o600))
		must(t, os.Rename(dir+"/"+name+".tmp", dir+"/"+name))
	}
	for _, newer := range []bool{false, true} {
		must(t, os.WriteFile(dir+"/staged", []byte("first edit"), 0o600)) // an exchange has moved it here
		must(t, os.WriteFile(dir+"/host", []byte("mine"), 0o600))
		put, want := ino("host"), "first edit"
		if newer {
			write("host") // a second edit
			want = "host"
		}
		must(t, exchangeBack(fd, "staged", fd, "host", put))
		if text, err := os.ReadFile(dir + "/host"); err != nil || string(text) != want {
			t.Errorf("the host has %q, %v, want %q", text, err, want)
		}
	}
}

// N5: an apply that is killed between an exchange and the look at what came out gives an edit of that moment back.
func TestKilledInExchange(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo old > f; echo old > gone`)
	l.inside(`echo mine > f; rm gone`)
	r := l.resume()
	ls := r.lister(nil)
	all, err := ls.all()
	must(t, err)
	a, err := r.newApplier(&Outcome{})
	must(t, err)
	for _, j := range jobsOf(all) {
		must(t, a.prepare(j))
		a.journal.add(j.e)
	}
	must(t, a.journal.flush(true))
	l.shell(l.ws, `for f in f gone; do echo theirs > tmp; mv tmp $f; done`)
	for _, j := range jobsOf(all) {
		n := map[string]int{"f": 1, "gone": 2}[j.path]
		flags := map[op]uint{opReplace: unix.RENAME_EXCHANGE, opDelete: unix.RENAME_NOREPLACE}[j.op]
		from, to := filepath.Join(r.stageDir(), stageName(n)), filepath.Join(l.ws, j.path)
		if j.op == opDelete {
			from, to = to, from
		}
		must(t, unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags))
	}
	must(t, r.Close()) // the kill
	list := l.list()
	if got := l.shell(l.ws, `cat f gone`); got != "theirs\ntheirs\n" {
		t.Errorf("the host has %q", got)
	}
	for _, path := range []string{"f", "gone"} {
		if c := find(t, list, path); c.Conflict == "" {
			t.Errorf("%s is no conflict", path)
		}
	}
}

// A rename that changes only the case of a name, of a file and of a folder that the command has made.
func TestCaseOnlyRename(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo readme > readme; mkdir docs; echo d > docs/d`)
	before := l.host()
	l.inside(`mv readme README; mv docs DOCS`)
	want := l.within()
	if got := lines(l.list()); !slices.Contains(got, `renamed file "README" from readme`) || !slices.Contains(got, `renamed file "DOCS/d" from docs/d`) {
		t.Errorf("the list: %s", got)
	}
	if out := l.apply(Options{}); !out.All() {
		t.Errorf("left: %v", out.Failed)
	}
	differ(t, "after the apply", l.host(), want)
	if out := l.undo(); !out.All() {
		t.Errorf("left by the undo: %v", out.Failed)
	}
	differ(t, "after the undo", l.host(), before)
}

// N5: what a name can hide: escapes, bytes that are no text, and the longest paths. A reader gets all of it.
func TestHostileNames(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "/usr/bin/python3")
	l := newLab(t, `mkdir d`)
	before := l.host()
	l.inside(`/usr/bin/python3 - <<'.'
import os
for name in (b"\x1b]0;t\x07", b"\r\x1b[2K ok", b"a\nM  b", b"\xff\xfe", b"\xed\xa0\x80", b"-rf", b"--help", b" ", b"~", b"*", b"\xe2\x80\xae gpj.exe", b"\x01", b"n" * 255):
    open(b"d/" + name, "wb").close()
# 4,095 bytes are the longest path of one call; this one is longer.
os.chdir(b"d")
for i in range(20):
    os.mkdir(b"x" * 250); os.chdir(b"x" * 250)
open(b"bottom", "w").close()
.`)
	list := l.list()
	deep := 0
	for _, c := range list {
		if strings.Contains(c.NotCarried, "too deep") {
			deep++
		}
		if c.Path == "d/\xff\xfe" && string(c.Bytes) != c.Path {
			t.Errorf("%q has no bytes", c.Path)
		}
	}
	if deep != 1 {
		t.Errorf("%d are too deep", deep)
	}
	out := l.apply(Options{Want: func(abs string) bool { return !strings.Contains(abs, "xxx") }})
	if len(out.Failed) > 0 || len(out.Applied) != 13 {
		t.Errorf("applied %d, failed %v", len(out.Applied), out.Failed)
	}
	if n := l.shell(l.ws, `ls -f d | wc -l; find d -type f -printf x | wc -c`); !strings.HasSuffix(n, "\n13\n") {
		t.Errorf("on the host: %s", n)
	}
	l.undo()
	differ(t, "after the undo", l.host(), before)
	l.discard(nil)
	if _, err := os.Stat(l.resumeFile("layers")); err != nil {
		return
	}
	if left, _ := filepath.Glob(l.resumeFile("layers/*/upper/d/*")); len(left) > 0 {
		t.Errorf("left of the review: %d names", len(left))
	}
}

// N5: many equal files are joined to moves in a time that grows with their number alone.
func TestManyEqualFilesMoved(t *testing.T) {
	l := newLab(t, `mkdir a; cd a; for i in $(seq 8000); do echo x > $i; done`)
	l.inside(`mkdir b; cd b; for i in $(seq 8000); do echo x > n$i; done; rm -r ../a`)
	moved := map[string]bool{}
	for _, c := range l.list() {
		if c.Kind == Renamed {
			moved[c.From] = true
		}
	}
	if len(moved) != 8000 {
		t.Errorf("%d files were moved", len(moved))
	}
}

// N5: a folder becomes a git directory by the last of its files, whichever that is, and in whichever apply.
func TestGitDirectoryInParts(t *testing.T) {
	testenv.Need(t, "git")
	for _, last := range []string{"config", "HEAD", "hooks"} {
		l := newLab(t, "")
		l.shell(l.dir, `git init -q --bare made; echo id > made/hooks/update`)
		l.inside(`cp -r ` + l.dir + `/made evil; rm -r evil/` + last)
		if last == "HEAD" { // without it, nothing is protected
			if out := l.apply(Options{}); !out.All() {
				t.Errorf("without HEAD there are %s", lines(out.Protected))
			}
		} else {
			l.apply(Options{Allow: under(l.ws, "evil")})
		}
		l.inside(`cp -r ` + l.dir + `/made/` + last + ` evil/`)
		l.apply(Options{})
		if _, err := os.Lstat(l.ws + "/evil/" + last); last != "hooks" && err == nil {
			t.Errorf("%s was applied", last)
		}
		if _, err := os.Lstat(l.ws + "/evil/hooks/update"); last == "hooks" && err == nil {
			t.Error("a hook was applied")
		}
	}
}

// N5: a command that makes a folder again which an earlier one removed has not seen what the host did in it meanwhile.
func TestFolderMadeAgain(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, "mkdir -p d/sub; echo one > d/a; echo two > d/sub/b; echo three > d/c")
	l.inside("rm -r d")
	l.shell(l.ws, "echo host >> d/a; echo host >> d/sub/b; echo host > d/new")
	l.inside("mkdir -p d/sub; echo new > d/a; echo new > d/sub/b; echo new > d/c; echo new > d/e")
	got := lines(l.list())
	for _, want := range []string{`changed file "d/a" conflict`, `changed file "d/sub/b" conflict`, `changed file "d/c"`, `added file "d/e"`, `deleted file "d/new" conflict`} {
		if !slices.Contains(got, want) {
			t.Errorf("the list lacks %s:\n%s", want, strings.Join(got, "\n"))
		}
	}
	l.apply(Options{})
	if host := l.shell(l.ws, "cat d/a d/sub/b d/c d/new"); host != "one\nhost\ntwo\nhost\nnew\nhost\n" {
		t.Errorf("after the apply the host has %q", host)
	}
}
