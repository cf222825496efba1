//go:build unix

package audit

import (
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// limitFileSize makes writes fail after 2000 bytes, as on a full disk.
func limitFileSize() {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 2000, Max: 2000}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
}

// W8: the kernel refuses a write in the middle of a line.
func TestKernelWriteError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self, path, "1000")
	c.Env = append(os.Environ(), childVar+"=limited")
	out, err := c.CombinedOutput()
	if c.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), syscall.EFBIG.Error()) {
		t.Fatalf("%v: %s", err, out)
	}
	d := NewDir(path)
	defer d.Close()
	record(t, d, 1)
	expectFindings(t, verify(t, path))
}

func expectModes(t *testing.T, path string) {
	t.Helper()
	must(t, filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", p, info.Mode().Perm(), want)
		}
		return err
	}))
}

// W8: only the owner can read, whatever the umask.
func TestModesUnderOpenUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	d, _, path := newTestDir(t)
	record(t, d, 1)
	expectModes(t, filepath.Dir(path))
}

// W8: modes that were loose before are made tight.
func TestModesAreTightened(t *testing.T) {
	d, c, path := newTestDir(t)
	record(t, d, 1)
	must(t, d.Close())
	must(t, os.Chmod(path, 0o777))
	must(t, os.Chmod(filepath.Join(path, headName), 0o666))
	must(t, os.Chmod(filepath.Join(path, dayName(c.at)), 0o644))
	record(t, d, 1)
	expectModes(t, path)
}

// W8: links in place of the folder, the head or a file are refused, and what
// they lead to is not touched.
func TestLinksAreRefused(t *testing.T) {
	for _, name := range []string{"", headName, dayName(day(1))} {
		for _, link := range []struct {
			word string
			make func(old, new string) error
		}{{"symbolic link", os.Symlink}, {"second name", os.Link}} {
			if name == "" && link.word == "second name" {
				continue
			}
			t.Run(name+" "+link.word, func(t *testing.T) { refusedLink(t, name, link.word, link.make) })
		}
	}
}

func refusedLink(t *testing.T, name, word string, link func(old, new string) error) {
	d, _, path := newTestDir(t)
	target := filepath.Join(t.TempDir(), "target")
	at := path
	if name == "" {
		must(t, os.MkdirAll(target, 0o755))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	} else {
		must(t, os.WriteFile(target, nil, 0o644))
		must(t, os.MkdirAll(path, 0o700))
		at = filepath.Join(path, name)
	}
	must(t, link(target, at))
	if err := d.Record(Event{}); err == nil || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v", err)
	}
	info, err := os.Stat(target)
	must(t, err)
	if info.Mode().Perm()&0o044 == 0 || (name != "" && info.Size() != 0) {
		t.Errorf("the target was touched: %v, %d bytes", info.Mode(), info.Size())
	}
}

// W8: a link inside of the folder, to another file there.
func TestInnerSymlinkRefused(t *testing.T) {
	d, c, path := newTestDir(t)
	record(t, d, 1)
	must(t, d.Close())
	must(t, os.Rename(filepath.Join(path, dayName(c.at)), filepath.Join(path, "elsewhere")))
	must(t, os.Symlink("elsewhere", filepath.Join(path, dayName(c.at))))
	if err := d.Record(Event{}); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("Record: %v", err)
	}
	if _, err := Verify(path); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("Verify: %v", err)
	}
	n := 0
	for _, err := range Read(path, Filter{}) {
		n++
		if err == nil {
			t.Error("Read followed the link")
		}
	}
	if n != 1 {
		t.Errorf("Read yielded %d", n)
	}
}

// W8: a FIFO in place of a file is refused and not waited for.
func TestFIFORefused(t *testing.T) {
	for _, name := range []string{headName, dayName(day(1))} {
		d, _, path := newTestDir(t)
		must(t, os.MkdirAll(path, 0o700))
		must(t, syscall.Mkfifo(filepath.Join(path, name), 0o600))
		if err := d.Record(Event{}); err == nil || !strings.Contains(err.Error(), "special file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// W8: a folder that another user could change is refused.
func TestForeignOwnerRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	d, _, path := newTestDir(t)
	must(t, os.MkdirAll(path, 0o700))
	must(t, os.Chown(path, 12345, -1))
	if err := d.Record(Event{}); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("got %v", err)
	}
}

// W8: a folder without permission gives an error, not silence.
func TestUnwritableFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can write everywhere")
	}
	d, _, path := newTestDir(t)
	must(t, os.MkdirAll(path, 0o700))
	must(t, os.Chmod(path, 0o500))
	defer os.Chmod(path, 0o700)
	if err := d.Record(Event{}); err == nil {
		t.Error("no error")
	}
}
