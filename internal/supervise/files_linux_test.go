package supervise

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// tree makes one of everything; link leads to dir.
func tree(t *testing.T) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(tempDir(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", root+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := errors.Join(
		os.Mkdir(root+"/dir", 0o755),
		os.WriteFile(root+"/dir/file", []byte("x"), 0o644),
		os.Symlink("dir", root+"/link"),
		unix.Mkfifo(root+"/fifo", 0o644),
	); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestOpenSource(t *testing.T) {
	root := tree(t)
	for _, tt := range []struct {
		path string
		want host.Kind
		ok   bool
	}{
		{root + "/dir", hostfs.Dir, true},
		{root + "/dir/file", hostfs.File, true},
		{root + "/socket", hostfs.Socket, true},
		{root + "/fifo", hostfs.Other, true},
		{root + "/link", hostfs.Symlink, true},
		{"/dev/null", hostfs.Device, true},
		{"/", hostfs.Dir, true},
		{root + "/dir", hostfs.File, false},
		{root + "/link", hostfs.Dir, false},
		{root + "/link/file", hostfs.File, false},
		{root + "/dir/file/below", hostfs.File, false},
		{root + "/none", hostfs.Dir, false},
		{"/proc/self/fd/0", hostfs.Device, false},
	} {
		f, err := openSource(&backend.File{Path: tt.path, Want: tt.want})
		if (err == nil) != tt.ok {
			t.Errorf("%s as %v: %v", tt.path, tt.want, err)
		}
		if f != nil {
			f.Close()
		}
		if changed := (*ChangedError)(nil); err != nil && (!errors.As(err, &changed) || changed.Path != tt.path) {
			t.Errorf("%s: %T, want a ChangedError", tt.path, err)
		}
	}
}

// The way for old kernels decides the same.
func TestOpenWithoutOpenat2(t *testing.T) {
	root := tree(t)
	for _, path := range []string{"/", root, root + "/dir/file", root + "/link", root + "/link/file", root + "/none", "/proc/self/fd"} {
		a, errA := openNoLinks(path)
		b, errB := walkNoLinks(path)
		if (errA == nil) != (errB == nil) {
			t.Errorf("%s: openat2 %v, walk %v", path, errA, errB)
		}
		if errA != nil {
			continue
		}
		var sa, sb unix.Stat_t
		if unix.Fstat(a, &sa) != nil || unix.Fstat(b, &sb) != nil || sa.Ino != sb.Ino || sa.Dev != sb.Dev {
			t.Errorf("%s: the two are different files", path)
		}
		unix.Close(a)
		unix.Close(b)
	}
}

func TestOpenData(t *testing.T) {
	f, err := openData([]byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "content" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := f.WriteAt([]byte("X"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing to sealed data: %v", err)
	}
}

func TestChangedPaths(t *testing.T) {
	testenv.Need(t, "bwrap")
	root := tree(t)
	l := bwrapLaunch("true", 0, false)
	l.Files = append(l.Files, backend.File{Kind: backend.Source, Path: root + "/link/file", Want: hostfs.File})
	var changed *ChangedError
	if _, err := Start(context.Background(), noLimits(l)); !errors.As(err, &changed) || changed.Path != root+"/link/file" {
		t.Errorf("a link on the way: %v", err)
	}
	l = noneLaunch("true")
	l.MustExist = []string{root + "/none"}
	if _, err := Start(context.Background(), noLimits(l)); !errors.As(err, &changed) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is gone: %v", err)
	}
	l.MustExist = []string{root + "/link"}
	l.CreateDirs = []string{root + "/store/a"}
	if o, _ := run(t, noLimits(l)); o.ExitCode != 0 {
		t.Errorf("%+v", o)
	}
	if info, err := os.Stat(root + "/store/a"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the store: %v %v", info, err)
	}
}

// Root starts the launcher in a user namespace with every id mapped to itself.
func TestMapRoot(t *testing.T) {
	testenv.Need(t, "root", "userns")
	l := noneLaunch("readlink /proc/self/ns/user; id -u; cat /proc/self/uid_map /proc/self/gid_map")
	_, plain := run(t, noLimits(l))
	l.MapRoot = true
	o, mapped := run(t, noLimits(l))
	nsA, idsA, _ := strings.Cut(plain, "\n")
	nsB, idsB, _ := strings.Cut(mapped, "\n")
	if o.ExitCode != 0 || nsA == nsB || !slices.Equal(strings.Fields(idsA), strings.Fields(idsB)) {
		t.Errorf("%+v\nplain  %q\nmapped %q", o, plain, mapped)
	}
	// As a launcher, with a sandbox inside.
	testenv.Need(t, "bwrap")
	b := bwrapLaunch("exit 11", 0, false)
	b.MapRoot = true
	if o, out := run(t, noLimits(b)); o.ExitCode != 11 {
		t.Errorf("%+v %s", o, out)
	}
}
