package notify

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// deepFolder makes folders below another, and opens the last.
func deepFolder(t *testing.T, top, name string, levels int) int {
	t.Helper()
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		var next int
		next, err = unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// N9: the path of a folder is found beyond what the kernel tells, up to a limit.
func TestFolderPath(t *testing.T) {
	for _, tt := range []struct {
		size, levels int
		want         error
	}{
		{200, 3, nil},
		{200, 60, nil},
		{31, 300, nil},
		{200, 120, unix.ENAMETOOLONG},
		{2, 1400 + maxAbove, unix.ENAMETOOLONG},
	} {
		top, name := realTemp(t), strings.Repeat("n", tt.size)
		fd := deepFolder(t, top, name, tt.levels)
		before := countDescriptors(t)
		got, err := folderPath(fd)
		for range repeated {
			_, _ = folderPath(fd)
		}
		if want := top + strings.Repeat("/"+name, tt.levels); err != tt.want || err == nil && got != want {
			t.Errorf("%d levels of %d bytes: %d bytes, %v; want %d, %v", tt.levels, tt.size, len(got), err, len(want), tt.want)
		}
		if after := countDescriptors(t); after >= before+repeated {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	}
}

const repeated = 20

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// N9: a folder above that cannot be listed hides the name, and the path is not guessed.
func TestFolderPathUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may list every folder")
	}
	top, name := realTemp(t), strings.Repeat("n", 200)
	fd := deepFolder(t, top, name, 30)
	if err := unix.Fchmodat(fd, "..", 0o300, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := folderPath(fd); err != unix.ENAMETOOLONG {
		t.Errorf("%q, %v", got, err)
	}
	_ = unix.Fchmodat(fd, "..", 0o700, 0)
}

// N9: which mount a path is in.
func TestMountAt(t *testing.T) {
	const mounts = `20 1 0:5 / / rw - tmpfs tmpfs rw
21 20 0:6 / /home/a\040b rw - ext4 /dev/x rw
22 21 0:7 /deep /home/a\040b/over rw - ext4 /dev/x rw
23 22 0:8 / /home/a\040b/over ro - tmpfs none rw
24 20 0:9 / /home/a\134040b rw - tmpfs none rw
`
	for path, want := range map[string]string{
		"/": "20", "/home": "20", "/home/a b": "21", "/home/a b/overt": "21", "/home/a b/over": "23", "/home/a b/over/x": "23", `/home/a\040b/x`: "24",
	} {
		if got := mountAt([]byte(mounts), path); got != want {
			t.Errorf("%s is in %s, want %s", path, got, want)
		}
	}
}
