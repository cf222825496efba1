package review

import (
	"strconv"
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
