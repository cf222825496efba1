//go:build amd64 || arm64

package notify

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// errUnnamed: the path ends in "/", "." or "..", or is a link of /proc. No call can
// create, rename or remove such a name. What the kernel says of it does not depend on
// what is in a guarded directory, so that it can go on with the call.
var errUnnamed = errors.New("the path names no entry of a directory")

// A place is a name in a folder that is held open.
type place struct {
	dir     int    // O_PATH
	dirPath string // as seen inside, real
	name    string
	// slash: the path was written with a slash at its end.
	slash bool
	// host: the folder is the host's, because the name was given.
	host bool
	// device is the file system of what is there, once kind was asked.
	device uint64
}

func (p *place) close() { unix.Close(p.dir) }

func (p *place) path() string {
	if p.dirPath == "/" {
		return "/" + p.name
	}
	return p.dirPath + "/" + p.name
}

// readOnly reports whether the mount that the place is on can only be read.
func (p *place) readOnly() bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(p.dir, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}

// last is the name as the path ended. With a slash at its end the kernel asks for
// a directory in some calls, and does not follow a link in any that changes a name.
func (p *place) last() string {
	if p.slash {
		return p.name + "/"
	}
	return p.name
}

// A kind is what is at a place.
type kind uint32

const missing kind = 0

// kind says what is there. Links are not followed.
func (p *place) kind() (kind, error) {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return missing, nil
	}
	p.device = st.Dev
	return kind(st.Mode & unix.S_IFMT), err
}

// linkText is the text of the symbolic link of that name in a folder, or of an open one
// if the name is empty.
func linkText(dir int, name string) (string, error) {
	var buf [pathMax]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	return string(buf[:max(n, 0)]), err
}

// target is where the symbolic link there leads, as an absolute path.
func (p *place) target() (string, error) {
	text, err := linkText(p.dir, p.name)
	if err != nil {
		return "", err
	}
	if p.slash {
		text += "/"
	}
	if strings.HasPrefix(text, "/") {
		return text, nil
	}
	return p.dirPath + "/" + text, nil
}

// inside opens a path as the sandboxed processes would see it. Links of /proc
// that stand for open files are not followed: they would mean the broker's own.
func (b *Broker) inside(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(b.root, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR { // a rename raced with ".."
			return fd, err
		}
	}
}

// locate finds the folder and the name that an absolute path means.
func (b *Broker) locate(whole string) (*place, error) {
	if unnamed(whole) {
		return nil, errUnnamed
	}
	trimmed := strings.TrimRight(whole, "/")
	cut := strings.LastIndexByte(trimmed, '/')
	name := trimmed[cut+1:]
	if b.asks.given() {
		return b.locateGiven(whole)
	}
	dir, real, err := b.folder(whole[:cut+1])
	if err != nil {
		return nil, err
	}
	return &place{dir: dir, dirPath: real, name: name, slash: len(trimmed) < len(whole)}, nil
}

// unnamed reports whether a path ends in "/", "." or "..".
func unnamed(path string) bool {
	path = strings.TrimRight(path, "/")
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "", ".", "..":
		return true
	}
	return false
}

// wouldGuard reports whether a path that leads nowhere is in a guarded directory as
// far as it leads. It is asked only after an error.
func (b *Broker) wouldGuard(whole string) bool {
	if whole == "" { // it may be anywhere
		return true
	}
	if !strings.Contains(whole, "..") {
		clean := path.Clean(whole)
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(b.root, path.Dir(clean), &how)
		if err == nil {
			unix.Close(fd)
		}
		if err != unix.ELOOP {
			return b.guards(clean)
		}
	}
	w := b.walkPath(strings.TrimRight(whole, "/"))
	_ = w.folders(1) // up to where it fails
	return b.guards(path.Join(w.at, w.rest[len(w.rest)-1]))
}

// folder opens a folder and finds its real path. Most paths hold no link, and
// then are what they seem: asking for the real one costs as much as opening.
func (b *Broker) folder(name string) (fd int, real string, err error) {
	if !strings.Contains(name, "..") {
		real = path.Clean(name)
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
		fd, err = unix.Openat2(b.root, real, &how)
		switch err {
		case unix.ELOOP, unix.EINTR, unix.EAGAIN:
		default: // no link was in the way: to follow them would change nothing
			return fd, real, err
		}
	}
	if fd, err = b.inside(name, unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return -1, "", err
	}
	if real, err = realPath(fd); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, real, nil
}

// place finds what a name in the process's memory means, without following a
// link at its end.
func (c *call) place(dirfd int32, address uint64) (*place, error) {
	text, err := c.text(address)
	switch {
	case err != nil:
		return nil, err
	case text == "":
		return nil, unix.ENOENT
	case unnamed(text) || namesOwn(text):
		return nil, errUnnamed
	}
	w, err := c.wayOf(dirfd, text)
	if err != nil {
		return nil, err
	}
	return c.locate(w)
}

// path reads a path, as seen inside.
func (c *call) path(dirfd int32, address uint64) (way, error) {
	text, err := c.text(address)
	if err != nil {
		return way{}, err
	}
	if text == "" {
		return way{}, unix.ENOENT
	}
	return c.wayOf(dirfd, text)
}

// wayOf is the way of a path that the process wrote.
func (c *call) wayOf(dirfd int32, text string) (way, error) {
	if strings.HasPrefix(text, "/") {
		return c.own(text)
	}
	return c.whole(dirfd, text)
}

// errNoPath: a descriptor is no file that has a path.
var errNoPath = errors.New("the descriptor has no path")

// own replaces the names under which a process reaches its own descriptors and
// folders, which would mean the broker's, by what they stand for.
func (c *call) own(path string) (way, error) {
	switch path {
	case "/dev/stdin":
		path = "/proc/self/fd/0"
	case "/dev/stdout":
		path = "/proc/self/fd/1"
	case "/dev/stderr":
		path = "/proc/self/fd/2"
	}
	rest, ok := strings.CutPrefix(path, "/dev/fd/")
	if ok {
		rest = "fd/" + rest
	} else if rest, ok = strings.CutPrefix(path, "/proc/self/"); !ok {
		if rest, ok = strings.CutPrefix(path, "/proc/thread-self/"); !ok {
			return way{whole: path}, nil
		}
	}
	return c.ownEntry(path, rest)
}

// ownEntry is what an entry of the process's folder in /proc stands for, or
// else the path as it is.
func (c *call) ownEntry(path, rest string) (way, error) {
	entry, below, _ := strings.Cut(rest, "/")
	switch entry {
	case "cwd":
	case "root":
		return way{whole: "/" + below}, nil
	case "fd":
		var number string
		number, below, _ = strings.Cut(below, "/")
		entry += "/" + number
	default:
		return way{whole: path}, nil
	}
	if below == "" {
		real, err := c.named(c.proc(entry))
		if err != nil {
			return way{}, errNoPath
		}
		return way{whole: real}, nil
	}
	w, err := c.from(c.proc(entry), below)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		err = errNoPath
	}
	return w, err
}

// openRoot opens the sandbox's root, which all its processes share: none of them
// has the right to change it.
func (c *call) openRoot() error {
	if c.b.root >= 0 {
		return nil
	}
	fd, err := unix.Open(c.proc("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if !c.valid() { // the number may mean another process by now
		unix.Close(fd)
		return unix.ESRCH
	}
	c.b.root = fd
	return nil
}
