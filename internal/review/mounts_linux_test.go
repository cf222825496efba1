package review

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// The test binary also runs a test in a mount namespace of its own: tmpfsVariable is where a tmpfs is to be mounted, and
// its options; mountedVariable is where it is.
const (
	tmpfsVariable   = "CLOCHE_TEST_REVIEW_TMPFS"
	mountedVariable = "CLOCHE_TEST_REVIEW_MOUNTED"
)

// onTmpfs runs the calling top-level test again, with a tmpfs of that size that no other process sees, as this user and as an ordinary one. There it
// returns the folder; here it returns "", and the test is done.
func onTmpfs(t *testing.T, size string) string {
	t.Helper()
	if dir := os.Getenv(mountedVariable); dir != "" {
		if err := unix.Setxattr(dir, "user.cloche", []byte("x"), 0); err != nil {
			t.Skipf("a tmpfs cannot have the layers of overlayfs before Linux 6.6: %v", err)
		}
		return dir
	}
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns")
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), tmpfsVariable+"=size="+size+":"+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	switch {
	case err != nil:
		t.Errorf("with a tmpfs: %v", err)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name()+" ")):
		t.Skip("skipped with a tmpfs")
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")):
		t.Errorf("%s did not run with a tmpfs", t.Name())
	}
	return ""
}

// mountTmpfs mounts the tmpfs, and starts this program again without the capability for that.
func mountTmpfs() {
	options, dir, ok := strings.Cut(os.Getenv(tmpfsVariable), ":")
	if !ok {
		return
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	}
	if err == nil {
		err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	if err == nil {
		os.Unsetenv(tmpfsVariable)
		os.Setenv(mountedVariable, dir)
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	fmt.Println("mount a tmpfs:", err)
	os.Exit(1)
}

// N5: with the store on another file system, an apply and its undo do the same as with one file system, and leave nothing in the workspace.
func TestFarStore(t *testing.T) {
	far := onTmpfs(t, "64m")
	if far == "" {
		return
	}
	l := newLab(t, someFiles)
	l.store = Open(far + "/review")
	before := l.host()
	l.inside(someChanges)
	want := l.within()
	list := lines(l.list())
	if len(list) < 20 {
		t.Fatalf("the list: %s", list)
	}
	r := l.resume()
	if far, err := r.isFar(&r.meta.Roots[0]); err != nil || !far {
		t.Fatalf("the store is on the same file system: %v", err)
	}
	must(t, r.Close())
	for range 2 {
		if out := l.apply(Options{}); !out.All() {
			t.Fatalf("left %s, %v, %s", lines(out.Conflicts), out.Failed, lines(out.NotCarried))
		}
		differ(t, "after the apply", l.host(), want)
		if rest := l.list(); len(rest) > 0 {
			t.Fatalf("after the apply there are changes: %s", lines(rest))
		}
		if out := l.undo(); !out.All() {
			t.Fatalf("not undone: %v", out.Failed)
		}
		differ(t, "after the undo", l.host(), before)
		differ(t, "inside after the undo", l.within(), want)
		if again := lines(l.list()); !slices.Equal(again, list) {
			t.Fatalf("the list after the undo:\n%s\nwant:\n%s", strings.Join(again, "\n"), strings.Join(list, "\n"))
		}
	}
	l.discard(nil)
	differ(t, "inside after the discard", l.within(), before)
}

// N5: with the store on another file system, protected files do not wait in the workspace, and what cannot be copied into the store is left.
func TestFarStoreLeaves(t *testing.T) {
	far := onTmpfs(t, "64m")
	if far == "" {
		return
	}
	l := newLab(t, `mkfifo pipe file; echo old > hook; echo old > plain`)
	l.store = Open(far + "/review")
	l.inside(`rm pipe file; echo now a file > file; echo mine > hook; echo mine > plain; echo mine > new-hook`)
	hook := func(abs string) string {
		if strings.HasSuffix(abs, "hook") {
			return "a program runs it"
		}
		return ""
	}
	stop := make(chan struct{})
	seen := make(chan []string)
	go func() {
		var names []string
		for {
			select {
			case <-stop:
				seen <- names
				return
			default:
			}
			waiting, _ := filepath.Glob(l.ws + "/.cloche-review-*/*")
			for _, file := range waiting {
				if text, err := os.ReadFile(file); err == nil && string(text) == "mine\n" {
					names = append(names, file)
				}
			}
		}
	}()
	out := l.apply(Options{Protect: hook, Allow: func(string) bool { return true }})
	close(stop)
	if names := slices.Compact(<-seen); len(names) > 1 {
		t.Errorf("more than one file waited in the workspace: %v", names)
	}
	for path, word := range map[string]string{"hook": "protected", "new-hook": "protected", "pipe": "pipe", "file": "pipe"} {
		if c := find(t, out.NotCarried, path); !strings.Contains(c.NotCarried, word) {
			t.Errorf("%s: %s", path, c.NotCarried)
		}
	}
	if got := l.shell(l.ws, `cat hook plain; ls -A`); got != "old\nmine\nfile\nhook\npipe\nplain\n" || len(out.Failed) > 0 {
		t.Errorf("on the host: %q, failed: %v", got, out.Failed)
	}
}

// N5: and if an apply or undo is killed there, nothing is lost, nothing is half, and nothing stays in the workspace.
func TestFarStoreKilled(t *testing.T) {
	far := onTmpfs(t, "256m")
	if far == "" {
		return
	}
	l := newLab(t, "")
	l.store = Open(far + "/review")
	l.killOften(killsOr(4))
}

// N5: with the store on another file system, a command that may write the workspace exchanges what waits there for links, while changes are applied and
// taken back. Nothing changes where they lead, not even a mode.
func TestFarStoreRaced(t *testing.T) {
	far := onTmpfs(t, "64m")
	if far == "" {
		return
	}
	l := newLab(t, `mkdir d; for i in $(seq 60); do echo old > d/$i; done`)
	l.store = Open(far + "/review")
	outside := filepath.Join(l.dir, "outside")
	l.shell(l.dir, `mkdir -m 700 outside; echo outside > outside/f; chmod 600 outside/f`)
	l.inside(`for i in $(seq 60); do echo mine > d/$i; chmod 777 d/$i; done; for i in $(seq 60 90); do echo mine > d/$i; done; mkdir -m 777 e`)
	before := l.shell(outside, treeScript+"; stat -c %a .")
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				stopped <- n
				return
			default:
			}
			stages, _ := filepath.Glob(l.ws + "/.cloche-review-*")
			for _, stage := range stages {
				if info, err := os.Lstat(stage); err != nil || !info.IsDir() {
					continue
				}
				names, _ := filepath.Glob(stage + "/*[0-9]")
				for _, name := range names {
					if os.Symlink(outside+"/f", name+".link") == nil && unix.Renameat2(unix.AT_FDCWD, name+".link", unix.AT_FDCWD, name, unix.RENAME_EXCHANGE) == nil {
						n++
					}
				}
				if n%7 == 0 && os.Rename(stage, stage+"-away") == nil {
					_ = os.Symlink(outside, stage)
				}
			}
		}
	}()
	for range 6 {
		if r, err := l.store.Resume(l.ws, DefaultName); err == nil { // it may find no way to finish what was exchanged
			_, _ = r.Apply(Options{Theirs: true})
			_, _ = r.Undo()
			must(t, r.Close())
		}
	}
	close(stop)
	if n := <-stopped; n == 0 {
		t.Error("nothing was exchanged")
	}
	differ(t, "outside", l.shell(outside, treeScript+"; stat -c %a ."), before)
	if got := l.shell(outside, "cat f; ls"); got != "outside\nf\n" {
		t.Errorf("outside: %q", got)
	}
}

// fill leaves that much space on a tmpfs.
func fill(t *testing.T, dir string, leave int64) {
	t.Helper()
	f, err := os.Create(dir + "/ballast")
	must(t, err)
	defer f.Close()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if size := int64(st.Bavail)*st.Bsize - leave; size > 0 {
		must(t, unix.Fallocate(int(f.Fd()), 0, 0, size))
	}
}

// N5: the command fills the disk of the store: it sees that, and nothing is lost. A discard makes room.
func TestFullDiskInside(t *testing.T) {
	far := onTmpfs(t, "4m")
	if far == "" {
		return
	}
	l := newLab(t, someFiles)
	l.store = Open(far + "/review")
	before := l.host()
	got := l.inside(`echo first > first; dd if=/dev/zero of=big bs=64k count=1000 2>&1 || true; echo second > src/one || echo full`)
	if strings.Count(got, "No space left on device") != 2 || !strings.Contains(got, "full\n") {
		t.Errorf("the command saw: %s", got)
	}
	differ(t, "the host", l.host(), before)
	list := l.list()
	find(t, list, "first")
	if c := find(t, list, "big"); c.Size < 1<<20 {
		t.Errorf("of the big file there are %d bytes", c.Size)
	}
	l.discard(under(l.ws, "big"))
	if out := l.apply(Options{Want: under(l.ws, "first")}); !out.All() {
		t.Errorf("failed: %v", out.Failed)
	}
	if got := l.inside(`cat first; echo second > src/one; cat src/one`); got != "first\nsecond\n" {
		t.Errorf("after the discard: %q", got)
	}
	l.discard(nil)
}

// N5: an apply, an undo and a discard on a full disk leave each file old or new, and can be repeated when there is room. It does not
// matter whether the workspace is on that disk.
func TestFullDiskApply(t *testing.T) {
	disk := onTmpfs(t, "8m")
	if disk == "" {
		return
	}
	failed := 0
	for _, far := range []bool{false, true} {
		for _, leave := range []int64{0, 8, 24, 200} {
			what := fmt.Sprintf("far %t, %d KiB left", far, leave)
			l := newLab(t, "")
			l.store = Open(disk + "/review")
			if !far {
				l.ws = disk + "/ws"
				must(t, os.RemoveAll(l.ws))
				must(t, os.Mkdir(l.ws, 0o755))
			}
			l.shell(l.ws, manyOld)
			before := l.host()
			l.inside(manyNew)
			want := l.within()
			old, now := entries(before), entries(want)
			steps := map[string]func(*Review) (*Outcome, error){
				"apply": func(r *Review) (*Outcome, error) { return r.Apply(Options{}) },
				"undo":  (*Review).Undo,
			}
			for _, step := range []string{"apply", "undo", "apply"} {
				fill(t, disk, leave<<10)
				// Opening it may need room, too: to finish what the last step has left.
				r, err := l.store.Resume(l.ws, DefaultName)
				var out *Outcome
				if err == nil {
					out, err = steps[step](r)
					must(t, r.Close())
				}
				if err != nil {
					failed++
					if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "make room") {
						t.Errorf("%s: %s: %v", what, step, err)
					}
				} else if !out.All() {
					t.Errorf("%s: %s: %v", what, step, out.Failed)
				}
				// What is there can be seen on the full disk, too.
				if look, err := l.store.Look(l.ws, DefaultName); err != nil {
					t.Errorf("%s: after the %s: %v", what, step, err)
				} else if _, err := look.List(nil, nil); err != nil {
					t.Errorf("%s: the list after the %s: %v", what, step, err)
				}
				for path, is := range entries(l.host()) {
					if strings.HasPrefix(path, "./.cloche-review-") {
						continue
					}
					if !slices.Equal(is, old[path]) && !slices.Equal(is, now[path]) && !isHalfMade(is, now[path], old[path]) {
						t.Fatalf("%s: after the %s %s is %q, want %q or %q", what, step, path, is, old[path], now[path])
					}
				}
				must(t, os.Remove(disk+"/ballast"))
				r, err = l.store.Resume(l.ws, DefaultName)
				must(t, err)
				out, err = steps[step](r)
				if err != nil && !errors.Is(err, ErrNothingToUndo) || err == nil && !out.All() {
					t.Fatalf("%s: %s with room: %v, %+v", what, step, err, out)
				}
				must(t, r.Close())
				if step == "undo" && l.host() != before {
					// The undo had ended, and this one was of nothing; or an apply of a part was undone.
					t.Logf("%s: the undo took back what the last apply did", what)
				}
				if step == "apply" {
					differ(t, what+": the host", l.host(), want)
				}
				differ(t, what+": inside", l.within(), want)
			}
			fill(t, disk, leave<<10)
			l.discard(nil)
			must(t, os.Remove(disk+"/ballast"))
			must(t, removeAll(disk+"/review"))
			l.shell(l.ws, `chmod -R u+rwx .`)
		}
	}
	if failed == 0 {
		t.Error("the disk was never full")
	}
}
