//go:build amd64 || arm64

package notify

import (
	"bytes"
	"fmt"
	"os"
	pathpkg "path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/umask"
)

const pathMax = 4096

// readText reads a string from the memory of the process.
func (c *call) readText(address uint64) (string, error) {
	var buf [pathMax]byte
	have := 0
	for have < len(buf) {
		// Up to the end of a page: the next one may not be there.
		want := min(len(buf)-have, int(pathMax-(address+uint64(have))%pathMax))
		n, err := c.read(address+uint64(have), buf[have:have+want])
		if err != nil {
			return "", unix.EFAULT
		}
		if end := bytes.IndexByte(buf[have:have+n], 0); end >= 0 {
			return string(buf[:have+end]), nil
		}
		have += n
	}
	return "", unix.ENAMETOOLONG
}

func (c *call) read(address uint64, into []byte) (int, error) {
	local := []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(into)}}
	n, err := unix.ProcessVMReadv(c.pid, local, remote, 0)
	if err == nil && n == 0 {
		return 0, unix.EFAULT
	}
	return n, err
}

// proc is the name of something of the process in the host's /proc.
func (c *call) proc(rest string) string { return "/proc/" + strconv.Itoa(c.pid) + "/" + rest }

// descriptorLink is the name of a descriptor of the process.
func (c *call) descriptorLink(fd int32) string { return c.proc("fd/" + strconv.Itoa(int(fd))) }

// whole is the way of a path that the process wrote relative to one of its folders, or of an
// absolute one. It is not cleaned: ".." means the parent of what a link points to.
func (c *call) whole(dirfd int32, path string) (way, error) {
	if strings.HasPrefix(path, "/") {
		return way{whole: path}, nil
	}
	link := c.proc("cwd")
	if dirfd != unix.AT_FDCWD {
		link = c.descriptorLink(dirfd)
	}
	return c.from(link, path)
}

// fromRemoved is whole for a path relative to a directory that was removed. From there
// "." and the way up still work, and there is nothing else.
func fromRemoved(dir, path string) (string, error) {
	for strings.HasPrefix(path, "./") {
		path = strings.TrimLeft(path[1:], "/")
	}
	switch {
	case path == ".." || strings.HasPrefix(path, "../"):
		return pathpkg.Dir(dir) + "/." + path[2:], nil // which names no entry, as ".."
	case strings.Contains(strings.TrimRight(path, "/"), "/"):
		return "", unix.ENOENT
	}
	return "", errRemoved
}

// errRemoved: a name is in a directory that was removed. It is an ENOENT, which the
// kernel finds only after it has looked for the directory of another name.
var errRemoved = fmt.Errorf("the directory was removed: %w", unix.ENOENT)

// named is the path of what a link of /proc means. For what has no name any more it
// is the last one, with errRemoved. Other errors are those of a call with a descriptor
// that is not open, or is not of a file.
func named(link string) (string, error) {
	name, err := readlink(link)
	switch {
	case err == unix.ENOENT:
		return "", unix.EBADF
	case err != nil:
		return "", err
	case !strings.HasPrefix(name, "/"):
		return "", unix.ENOTDIR
	}
	if last, ok := strings.CutSuffix(name, " (deleted)"); ok { // or the name says so itself
		var st unix.Stat_t
		switch err := unix.Stat(link, &st); {
		case err == nil && st.Nlink == 0 && st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return "", unix.ENOTDIR
		case err != nil || st.Nlink == 0:
			return last, errRemoved
		}
	}
	return name, nil
}

// readlink is os.Readlink for links of /proc, whose length is bounded.
func readlink(name string) (string, error) {
	var buf [pathMax]byte
	n, err := unix.Readlink(name, buf[:])
	if err != nil {
		return "", err
	}
	if n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// realPath is the path of an open file as seen inside: links of /proc show the
// path in the mount namespace of the file.
func realPath(fd int) (string, error) { return readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// program is its name, for the record.
func (c *call) program() string {
	b, err := os.ReadFile(c.proc("comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// umask is the mask that the process takes off the permissions of what it
// creates. It rarely changes, and is costly to find out: the filter tells when
// a process changes its mask, and until then all have the one they began with.
func (c *call) umask() uint32 {
	if c.b.umask >= 0 && !c.b.umaskChanged {
		return uint32(c.b.umask)
	}
	mask := umask.Of(c.proc("status"))
	if mask < 0 {
		return 0o077
	}
	c.b.umask = mask
	return uint32(mask)
}
