package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// F5 F14: a listing is complete, or it is none.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	complete := listsAll(fd) // not on a file system of a network, for instance
	if names, ok := (OS{}).Names(dir); ok != complete || len(names) != 0 {
		t.Errorf("an empty folder: %q, %v, want %v", names, ok, complete)
	}
	want := []string{".hidden", "UPPER", "a b", "line\nfeed", "päth", strings.Repeat("x", 255)}
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := OS{}.Names(dir)
	slices.Sort(got)
	slices.Sort(want)
	if ok != complete || ok && !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q, %v", got, ok, want, complete)
	}
}

// A folder that does not fit is not listed in part.
func TestNamesOfALargeFolder(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 * maxListing / 64 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%032d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names, ok := (OS{}).Names(dir); ok {
		t.Errorf("listed with %d names", len(names))
	}
}

// What is no folder, may not be read, or lies where names can be found that are
// not listed, is not listed.
func TestNamesOfOthers(t *testing.T) {
	dir := t.TempDir()
	file, link, closed := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "closed")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(closed, 0o300); err != nil {
		t.Fatal(err)
	}
	others := []string{file, link, filepath.Join(dir, "missing"), "/proc", "/sys", "/proc/self/fd"}
	if os.Getuid() != 0 {
		others = append(others, closed)
	}
	for _, p := range others {
		if names, ok := (OS{}).Names(p); ok {
			t.Errorf("%s is listed: %q", p, names)
		}
	}
}

// What the kernel wrote is read as far as it makes sense.
func TestEntries(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("\x00", 64), strings.Repeat("\xff", 64)} {
		for name := range Entries(text) {
			t.Errorf("%q: %q", text, name)
		}
	}
}
