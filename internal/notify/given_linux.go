//go:build amd64 || arm64

package notify

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/policy"
)

// What was given while the command runs is not in the sandbox: the kernel hides
// it or keeps it from being written, as before. The broker looks it up on the
// host, from the host's root on and through no symbolic link, so that a path is
// what it seems. Links are followed by name, in the sandbox's view: what one leads
// to is judged like any other path, wherever the link itself was found.

// A walker finds out what a path means, component by component.
type walker struct {
	b     *Broker
	rest  []string // that are still to be looked up
	at    string   // the real folder so far
	links int
	// unseen: a rule or a missing file kept the walker from looking further, and
	// the rest is as it was written.
	unseen bool
}

// walkPath begins at the root.
func (b *Broker) walkPath(whole string) *walker {
	return &walker{b: b, at: "/", rest: strings.Split(whole, "/")}
}

// folders looks up all but the last n components. err is ELOOP, or ENOTDIR for a
// file on the way.
func (w *walker) folders(n int) error {
	for len(w.rest) > n {
		name := w.rest[0]
		w.rest = w.rest[1:]
		if err := w.step(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) step(name string) error {
	switch name {
	case "", ".":
		return nil
	case "..":
		w.at = path.Dir(w.at)
		return nil
	}
	next := path.Join(w.at, name)
	if w.unseen {
		w.at = next
		return nil
	}
	k, target, err := w.b.look(next)
	switch {
	case err == nil && k == unix.S_IFLNK:
		return w.follow(target)
	case err == nil && k != unix.S_IFDIR && len(w.rest) > 0:
		return unix.ENOTDIR
	case err != nil && !w.b.asks.leadsTo(next):
		w.unseen = true
	}
	w.at = next
	return nil
}

// follow puts what a link leads to in its place.
func (w *walker) follow(target string) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	if strings.HasPrefix(target, "/") {
		w.at = "/"
	}
	w.rest = append(strings.Split(target, "/"), w.rest...)
	return nil
}

// look says what is at a path whose folder is real, and where it leads if it is
// a link.
func (b *Broker) look(name string) (k kind, target string, err error) {
	p, err := b.real(path.Dir(name), path.Base(name))
	if err != nil {
		return missing, "", err
	}
	defer p.close()
	if k, err = p.kind(); err != nil {
		return k, "", err
	}
	switch k {
	case missing:
		return k, "", unix.ENOENT
	case unix.S_IFLNK:
		var buf [pathMax]byte
		n, err := unix.Readlinkat(p.dir, p.name, buf[:])
		return k, string(buf[:max(0, n)]), err
	}
	return k, "", nil
}

// real opens a folder that is real, for a name in it: the host's where the name
// was given, the sandbox's elsewhere.
func (b *Broker) real(dir, name string) (*place, error) {
	p := &place{dirPath: dir, name: name}
	root, from := b.root, dir
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	if b.asks.gave(p.path()) {
		behind, ok := b.asks.Plan.Behind(p.path())
		if !ok || path.Base(behind.Path) != name {
			return nil, unix.EACCES
		}
		root, from = unix.AT_FDCWD, path.Dir(behind.Path)
		how.Resolve = unix.RESOLVE_NO_SYMLINKS
		p.host = true
	}
	for {
		fd, err := unix.Openat2(root, from, &how)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		p.dir = fd
		return p, err
	}
}

// locateGiven is locate where something was given.
func (b *Broker) locateGiven(whole string) (*place, error) {
	trimmed := strings.TrimRight(whole, "/")
	w := b.walkPath(trimmed)
	if err := w.folders(1); err != nil {
		return nil, err
	}
	if w.unseen {
		return nil, unix.ENOENT
	}
	name := w.rest[0]
	if name == "" || name == "." || name == ".." { // of a link
		return nil, errUnnamed
	}
	p, err := b.real(w.at, name)
	if err != nil {
		return nil, err
	}
	p.slash = len(trimmed) < len(whole)
	return p, nil
}

// meaning is the path that a name would have if nothing were hidden, as far as
// that can be seen.
func (b *Broker) meaning(whole string) (string, error) {
	w := b.walkPath(strings.TrimRight(whole, "/"))
	err := w.folders(0)
	return w.at, err
}

// given opens what was given and is at a path, as an O_PATH descriptor with the
// path inside. found is false if that was not given.
func (b *Broker) given(whole string) (fd int, real string, found bool, err error) {
	if !b.asks.given() || whole == "" {
		return -1, "", false, nil
	}
	if real, err = b.meaning(whole); err != nil || !b.asks.gave(real) {
		return -1, "", false, nil
	}
	p, err := b.real(path.Dir(real), path.Base(real))
	if err != nil {
		return -1, real, true, err
	}
	defer p.close()
	fd, err = unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return fd, real, true, err
}

// together makes two places ones of the host if one of them is: the kernel moves
// nothing from one mount to another.
func (b *Broker) together(from, to *place) error {
	if from.host == to.host {
		return nil
	}
	if to.host {
		return b.toHost(from)
	}
	return b.toHost(to)
}

// linkGiven gives a file a second name where one of the two names was given. Both
// have to be writable: what can only be read could be written by its new name.
func (b *Broker) linkGiven(source int, from, at *place) error {
	if b.config.Judge().Path(from.path()).Access != policy.Write {
		return unix.EXDEV // as the kernel says of two mounts
	}
	if err := b.together(from, at); err != nil {
		return err
	}
	fd, err := unix.Openat(from.dir, from.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !sameFile(fd, source) {
		return unix.ENOENT
	}
	return unix.Linkat(unix.AT_FDCWD, selfFD(fd), at.dir, at.name, unix.AT_SYMLINK_FOLLOW)
}

func (b *Broker) toHost(p *place) error {
	behind, ok := b.asks.Plan.Behind(p.path())
	if !ok || path.Base(behind.Path) != p.name {
		return unix.EXDEV
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path.Dir(behind.Path), &how)
	if err != nil {
		return err
	}
	if !sameFile(fd, p.dir) {
		unix.Close(fd)
		return unix.EXDEV
	}
	p.close()
	p.dir, p.host = fd, true
	return nil
}

// sameFile reports whether two descriptors are of one file or folder.
func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}
