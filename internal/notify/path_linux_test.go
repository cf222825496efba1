package notify

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
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

// Both names of a call are found however long they are and wherever they lie in memory: at the
// end of a page, in two, or where there is nothing.
func TestRenamesWithNamesAnywhere(t *testing.T) {
	testenv.Need(t, "python3")
	dir := realTemp(t)
	const script = `
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.rename.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
page = mmap.PAGESIZE
area = mmap.mmap(-1, 3 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(area))
libc.mprotect(ctypes.c_void_p(start + 2 * page), page, 0)
def put(text, at):
    area[at:at + len(text) + 1] = text + b"\0"
    return start + at
def rename(one, two):
    return ctypes.get_errno() if libc.rename(one, two) else 0
def expect(what, got, want, there):
    if got != want or os.path.exists(there) != (want == 0):
        print("%s: %s" % (what, errno.errorcode.get(got, got)))
long = b"./" * 600
for what, end in [("short", 1000), ("at the end of a page", page - 2), ("in two pages", page + 1), ("before nothing", 2 * page - 1)]:
    for lead in [b"", long]:
        open("from", "w").close()
        two = lead + b"to"
        expect("%s, %d" % (what, len(two)), rename(ctypes.addressof(ctypes.create_string_buffer(b"from")), put(two, max(end, len(two)) - len(two))), 0, "to")
        one = lead + b"to"
        expect("%s, %d, back" % (what, len(one)), rename(put(one, max(end, len(one)) - len(one)), ctypes.addressof(ctypes.create_string_buffer(b"back"))), 0, "back")
        os.unlink("back")
open("from", "w").close()
area[2 * page - 4:2 * page] = b"xxxx"
name = ctypes.create_string_buffer(b"from")
expect("no end", rename(ctypes.addressof(name), start + 2 * page - 4), errno.EFAULT, "xxxx")
expect("nothing there", rename(ctypes.addressof(name), start + 2 * page), errno.EFAULT, "to")
expect("nothing there either", rename(start + 2 * page, ctypes.addressof(name)), errno.EFAULT, "to")
expect("one name twice", rename(ctypes.addressof(name), ctypes.addressof(name)), 0, "from")
`
	if err := os.WriteFile(dir+"/program", []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, refused := run(t, workspace(dir), "writes", "cd "+dir+"; exec python3 program"); out != "" || len(refused) > 0 {
		t.Errorf("inside: %s; refused %q", out, refused)
	}
	if out, err := execShell("cd "+dir+"; exec python3 program", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("outside: %v: %s", err, out)
	}
}

// A change that its name alone allows is made without a look first: it has the result that it
// has outside, whatever is there.
func TestChangesByName(t *testing.T) {
	testenv.Need(t, "python3")
	const script = `
import errno, os, shutil, socket
def bind(path):
    with socket.socket(socket.AF_UNIX) as s: s.bind(path)
there = {
    "nothing": lambda p: None, "a file": lambda p: open(p, "w").close(), "a directory": os.mkdir, "a full one": lambda p: os.makedirs(p + "/x"),
    "a link": lambda p: os.symlink("file", p), "a link to a directory": lambda p: os.symlink("folder", p), "a link to nothing": lambda p: os.symlink("nothing", p),
    "a link to itself": lambda p: os.symlink("it", p), "a FIFO": os.mkfifo, "a socket": bind,
}
def opens(flags): return lambda p: os.close(os.open(p, os.O_CREAT | os.O_EXCL | flags, 0o640))
changes = {
    "create": opens(os.O_WRONLY), "create to read": opens(os.O_RDONLY | os.O_TRUNC), "create for neither": opens(3), "mkdir": os.mkdir, "mkfifo": os.mkfifo,
    "mknod": lambda p: os.mknod(p, 0o100600), "unlink": os.unlink, "rmdir": os.rmdir,
}
for what, make in there.items():
    for name, change in changes.items():
        for path in ["it", "it/", "it//", "./it", os.path.abspath("in/it"), "folder/../it", "it" + 255 * "x", "it/x"]:
            os.mkdir("in"); os.chdir("in"); os.mkdir("folder"); open("file", "w").close()
            make("it")
            try: result = change(path)
            except OSError as e: result = errno.errorcode[e.errno]
            modes = ["%s %o" % (n, os.lstat(n).st_mode) for n in sorted(os.listdir("."))]
            print(what, name, path.replace(os.getcwd(), ""), result, *modes)
            os.chdir(".."); shutil.rmtree("in")
`
	var results [2]string
	for i := range results {
		dir := realTemp(t)
		if err := os.WriteFile(dir+"/program", []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		command := "cd " + dir + "; exec python3 -B program"
		if i == 0 {
			out, err := execShell(command, dir).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			results[i] = strings.TrimSpace(string(out))
			continue
		}
		var refused []string
		if results[i], refused = run(t, workspace(dir), "writes", command); len(refused) > 0 {
			t.Errorf("refused %q", refused)
		}
	}
	outside, inside := strings.Split(results[0], "\n"), strings.Split(results[1], "\n")
	if len(outside) != 10*8*8 {
		t.Errorf("%d results: %s", len(outside), outside[len(outside)-1])
	}
	for i := range min(len(outside), len(inside)) {
		if outside[i] != inside[i] {
			t.Errorf("outside %s\ninside  %s", outside[i], inside[i])
		}
	}
}
