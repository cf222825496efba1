package safeopen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// W6: flags that name no file to judge, or open later with more rights.
func TestOpenRefusesLinuxFlags(t *testing.T) {
	dir := t.TempDir()
	for _, flag := range []int{unix.O_TMPFILE | os.O_RDWR, unix.O_PATH, unix.O_DIRECTORY, unix.O_NOFOLLOW} {
		if f, err := Open(dir, flag, 0o600, func(string, bool) error { return nil }); !errors.Is(err, unix.EINVAL) {
			t.Errorf("flag %#x: %v, %v", flag, f, err)
		}
	}
}

// W6: a link of /proc that leads to an open object is no way around the rule.
func TestOpenProcLinks(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		outside := filepath.Join(filepath.Dir(root), "outside")
		held, err := os.Open(outside)
		must(t, err)
		defer held.Close()
		for _, path := range []string{"/proc/self/root" + outside + "/secret", fmt.Sprintf("/proc/self/fd/%d/secret", held.Fd()), "/proc/self/cwd/x"} {
			f, err := open(path, os.O_RDONLY, 0, onlyBelow(root))
			if err == nil {
				f.Close()
				t.Errorf("%s was opened", path)
			}
		}
	})
}

// W6: a folder that was removed while it is the working folder has no path.
func TestOpenInRemovedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(dir, 0o755))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, os.Remove(dir))
	if p, err := pathOf(fd); !errors.Is(err, errChanged) {
		t.Errorf("path of a removed folder: %q, %v", p, err)
	}
	must(t, os.Mkdir(dir+" (deleted)", 0o755))
	if p, err := pathOf(fd); !errors.Is(err, errChanged) {
		t.Errorf("path of a removed folder with a namesake: %q, %v", p, err)
	}
}

// W6: no descriptor is left behind, whatever the outcome.
func TestOpenLeaksNoDescriptor(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		before := countFDs(t)
		for range 20 {
			for _, path := range []string{"file", "none", "tofile", "loop", "out/secret", "sub/", "file/x", "dangling"} {
				if f, err := open(root+"/"+path, os.O_RDONLY, 0, onlyBelow(root)); err == nil {
					f.Close()
				}
			}
		}
		if after := countFDs(t); after > before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

func countFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// W6: refusals of the rule stay recognisable.
func TestOpenWrapsRefusal(t *testing.T) {
	_, err := Open("/etc/hostname", os.O_RDONLY, 0, func(string, bool) error { return &EscapeError{Root: "/x"} })
	var pe *fs.PathError
	var esc *EscapeError
	if !errors.As(err, &pe) || pe.Path != "/etc/hostname" || !errors.As(err, &esc) {
		t.Errorf("got %v", err)
	}
}
