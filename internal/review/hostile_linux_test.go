package review

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A command that closes its own workspace does not close the review.
func TestRootClosed(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo old > f; mkdir d; echo old > d/f`)
	l.inside(`echo mine > f; echo mine > d/f; echo mine > new; chmod 000 d .`)
	find(t, l.list(), "new")
	l.discard(under(l.ws, "new"))
	if out := l.apply(Options{}); !out.All() {
		t.Errorf("left: %v", out.Failed)
	}
	if got := l.shell(l.ws, `cat f; stat -c %a . d; test ! -e new`); got != "mine\n755\n0\n" {
		t.Errorf("the apply made %q", got)
	}
	l.inside(`echo again > f`)
	l.shell(l.ws, `chmod 700 d`)
}

// After a discard that kept an apply for undo, the next command is the first again: what it deletes is no conflict.
func TestNoConflictsAfterDiscard(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo old > f; mkdir d; echo d > d/f; echo g > g`)
	l.inside(`echo mine > f; echo mine > new`)
	l.apply(Options{Want: under(l.ws, "f")})
	l.discard(nil)
	l.inside(`rm -r d g; mkdir d; echo e > d/e`)
	for _, c := range l.list() {
		if c.Conflict != "" {
			t.Errorf("%s has the conflict %s", c.Path, c.Conflict)
		}
	}
}

// N5: the host changes a file between two commands, and the second replaces what the first made of it. It never saw the
// host's version, so that is a conflict, whatever the two files are.
func TestConflictOfReplacedEntry(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `for f in file link flink lfile; do echo old > $f; done; ln -sfn a link; ln -sfn a lfile; echo old > many; echo old > mode`)
	l.inside(`echo mine > file; ln -sfn mine link; rm flink; ln -s mine flink; rm lfile; echo mine > lfile`)
	l.shell(l.ws, `echo theirs > file; ln -sfn theirs link; echo theirs > flink; ln -sfn theirs lfile`)
	l.inside(`for f in file lfile; do echo again > t; mv t $f; done; ln -sfn again link; ln -sfn again flink`)
	for _, name := range []string{"file", "link", "flink", "lfile"} {
		if c := find(t, l.list(), name); c.Conflict == "" {
			t.Errorf("%s is no conflict", name)
		}
	}
	if out := l.apply(Options{}); len(out.Conflicts) != 4 {
		t.Errorf("applied over the host's: %s", lines(out.Applied))
	}
	// What the host left alone is none, also after an apply and its undo.
	l.discard(nil)
	l.inside(`ln -sfn mine link; rm flink; ln -s mine flink`)
	for range 2 {
		if out := l.apply(Options{}); !out.All() {
			t.Errorf("a conflict without a change of the host's: %s", lines(out.Conflicts))
		}
		l.undo()
	}
}

// Many closed folders do not take the square of their number.
func TestManyClosedFolders(t *testing.T) {
	const n = 400_000
	r, root := &Review{}, &root{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			r.addOpened(openedFolder{Rel: []byte(strconv.Itoa(i)), Mode: uint32(i % 0o777)})
		}
		for i := range n {
			if got := r.modeOf(root, strconv.Itoa(i), unix.S_IFDIR|0o777); got != unix.S_IFDIR|uint32(i%0o777) {
				t.Errorf("%d has the mode %o", i, got)
				return
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(testenv.Patience):
		t.Fatal("it takes too long")
	}
}

// Files that take no space, and have the size of one that was deleted, are not all read.
func TestManyFilesOfOneSize(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `head -c 60M /dev/zero | tr '\0' x > big; echo moved > small`)
	l.inside(`mv small small2; rm big; for i in $(seq 3000); do echo $i; done | xargs truncate -s 60M`)
	r := l.resume()
	defer r.Close()
	done := make(chan int)
	go func() {
		list, err := r.List(nil, nil)
		if err != nil {
			t.Error(err)
		}
		done <- len(list)
	}()
	select {
	case n := <-done:
		if n < 3001 {
			t.Errorf("%d changes", n)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the list takes too long")
	}
}

// Looking at the reviews does not make a command of one fail.
func TestStatusDoesNotLock(t *testing.T) {
	l := newLab(t, `echo f > f`)
	l.inside(`true`)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r := &Review{path: l.store.folder(l.ws, DefaultName)}
		for {
			select {
			case <-stop:
				return
			default:
				r.isLocked()
			}
		}
	}()
	for range 1000 {
		r, err := l.store.Resume(l.ws, DefaultName)
		if err != nil {
			t.Error(err)
			break
		}
		if _, err := l.store.Resume(l.ws, DefaultName); !errors.Is(err, ErrInUse) {
			t.Errorf("a second lock: %v", err)
		}
		must(t, r.Close())
	}
	close(stop)
	<-stopped
}

// A command that exchanges a folder for a link does not lead the status elsewhere.
func TestStatusFollowsNoLink(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `mkdir ../outside; cd ../outside; touch $(seq 500)`)
	l.inside(`mkdir d; touch d/f; ln -s ` + l.dir + `/outside l`)
	upper := l.resumeFile("layers/0/upper")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, upper+"/d", unix.AT_FDCWD, upper+"/l", unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 3000 {
		if files, _ := used(l.resumeFile("")); files > 100 {
			t.Errorf("%d files", files)
			break
		}
	}
	close(stop)
	<-stopped
}

// N5: a file that is changed in place between the look at it and its exchange is not taken back.
func TestUndoOfFileChangedMeanwhile(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo old > replaced`)
	l.inside(`echo mine > replaced; echo mine > put`)
	l.apply(Options{})
	r := l.resume()
	defer r.Close()
	j, err := r.readJournal()
	must(t, err)
	w, err := r.appendJournal()
	must(t, err)
	a, err := r.openApplier(&Outcome{}, w, nil)
	must(t, err)
	defer a.close()
	for _, rec := range j.list {
		target := a.targetOf(rec.Root)
		d, name, err := target.lower.parent(string(rec.Path))
		must(t, err)
		defer unix.Close(d)
		var seen unix.Stat_t
		must(t, fstatat(d, name, &seen))
		must(t, os.WriteFile(l.ws+"/"+name, []byte("theirs\n"), 0o644))
		if err := a.takeBack(target, rec, d, name, &seen); !errors.Is(err, errSince) {
			t.Errorf("%s: %v", name, err)
		}
		if got := l.shell(l.ws, "cat "+name); got != "theirs\n" {
			t.Errorf("%s is %q", name, got)
		}
	}
}

// Looking at a root that is a file does not change the mode of the host's, not even for a moment.
func TestListLeavesModeOfFile(t *testing.T) {
	testenv.AlsoAsUser(t)
	dir := t.TempDir()
	file := dir + "/settings"
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	s := Open(dir + "/state")
	r, err := s.Begin(dir, "f", []string{file})
	must(t, err)
	defer r.Close()
	must(t, os.WriteFile(r.Layers()[0].Upper, []byte("new"), 0o600))
	must(t, os.Chmod(file, 0))
	var before, after unix.Stat_t
	must(t, unix.Stat(file, &before))
	if _, err := r.List(nil, nil); err != nil {
		t.Error(err)
	}
	must(t, unix.Stat(file, &after))
	if before.Ctim != after.Ctim {
		t.Error("its mode was changed")
	}
}

// What makes a folder a git directory, or leads jj elsewhere, needs its own yes.
func TestOtherRepositories(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `mkdir -p bare/info; echo x > bare/info/attributes`)
	l.inside(`echo 'ref: refs/heads/m' > bare/HEAD; mkdir -p bare/objects bare/refs sub/.jj plain/.jj/repo; echo ../x > sub/.jj/repo; echo x > plain/.jj/repo/store`)
	for path, want := range map[string]bool{"bare/HEAD": true, "sub/.jj/repo": true, "plain/.jj/repo": false, "plain/.jj/repo/store": false} {
		if c := find(t, l.list(), path); (c.Protected != "") != want {
			t.Errorf("%s: protected %q", path, c.Protected)
		}
	}
}

// A root that is gone, or is another one, does not keep the changes of the others from being looked at, applied, taken back and discarded.
func TestLostRoot(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, lose := range map[string]string{"gone": "rm -r other", "replaced": "mv other kept; mkdir other", "a file is gone": "rm settings", "a link": "mv other kept; ln -s kept other"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, `echo old > f; mkdir ../other; echo old > ../settings`)
			roots := []string{l.ws, l.dir + "/other", l.dir + "/settings"}
			r, err := l.store.Begin(l.ws, DefaultName, roots)
			must(t, err)
			for i, name := range []string{"f", "new", ""} {
				must(t, os.WriteFile(strings.TrimSuffix(r.Layers()[i].Upper+"/"+name, "/"), []byte("mine\n"), 0o644))
			}
			must(t, r.Close())
			l.shell(l.dir, lose)
			if n := len(l.list()); n != 3 {
				t.Errorf("%d changes", n)
			}
			if out := l.apply(Options{}); len(out.Applied) != 2 || len(out.NotCarried) != 1 {
				t.Errorf("applied %s, left %s", lines(out.Applied), lines(out.NotCarried))
			}
			if got := l.shell(l.ws, "cat f"); got != "mine\n" {
				t.Errorf("f is %q", got)
			}
			if out := l.undo(); len(out.Applied) != 2 || len(out.Failed) > 0 {
				t.Errorf("took back %s: %v", lines(out.Applied), out.Failed)
			}
			if _, err := l.store.Begin(l.ws, DefaultName, roots[:1]); err == nil {
				t.Error("a command began with another root")
			}
			lost := find(t, l.list(), map[bool]string{true: "settings", false: "other"}[strings.Contains(lose, "settings")])
			l.discard(func(abs string) bool { return abs == lost.Abs() })
			if n := len(l.list()); n != 2 {
				t.Errorf("%d changes are left", n)
			}
			l.inside(`test "$(cat f)" = mine`)
		})
	}
}

// An undo gives a file its set-id bits back, which the apply took from it.
func TestUndoOfSetID(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `echo run > f; chmod 4755 f`)
	l.inside(`chmod 700 f`)
	l.apply(Options{})
	if got := l.shell(l.ws, "stat -c %a f"); got != "700\n" {
		t.Errorf("applied: %s", got)
	}
	l.undo()
	if got := l.shell(l.ws, "stat -c %a f"); got != "4755\n" {
		t.Errorf("taken back: %s", got)
	}
	if c := find(t, l.list(), "f"); c.Kind != Mode || c.Conflict != "" {
		t.Errorf("after the undo: %+v", c)
	}
}
