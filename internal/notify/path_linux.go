//go:build amd64 || arm64

package notify

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// This file turns a path that a process gave into a directory that is open and a name in it.
// The directory's real path is what is judged, and its descriptor is what is used.

const (
	pathMax = 4096
	// maxLinks is how many symbolic links the kernel follows in one path.
	maxLinks = 40
)

var (
	// errUnnamed: the path ends in "/", "." or "..", or is a link in /proc. No call can
	// create, rename or remove such a name. What the kernel says of it does not depend on what
	// is in a guarded directory, so the kernel may run the call.
	errUnnamed = errors.New("the path names no entry of a directory")
	// errRemoved: the name is in a directory that was removed. The kernel reports this ENOENT
	// only after it has looked for the directory of another name.
	errRemoved = fmt.Errorf("the directory was removed: %w", unix.ENOENT)
	// errNoPath: a descriptor of the process is not a file with a path.
	errNoPath = errors.New("the descriptor has no path")
)

// A pathname is a path that a process gave, as seen inside.
//
// A process can use a directory that it has open although it could not open it by its path: a
// directory above is not searchable any more, or the path is longer than the kernel takes. So
// where a path cannot be looked up from the root, it is looked up from the directory that it
// begins in.
type pathname struct {
	full string // absolute; empty if it is longer than the kernel reports
	// base is a link in /proc to the directory that rel begins in. It is empty if the path was
	// absolute.
	base, rel string
}

// beyond reports whether a path may lead somewhere although it cannot be looked up from the
// root.
func (p pathname) beyond(err error) bool {
	return p.base != "" && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENAMETOOLONG))
}

// dirLink is the link in /proc to the directory that a relative path begins in.
func (c *call) dirLink(dirfd int32) string {
	if dirfd == unix.AT_FDCWD {
		return c.proc("cwd")
	}
	return c.proc("fd/" + strconv.Itoa(int(dirfd)))
}

// pathname finds where a path that the process gave begins. The path is not cleaned: ".."
// means the parent of what a link leads to.
func (c *call) pathname(dirfd int32, text string) (pathname, error) {
	if strings.HasPrefix(text, "/") {
		return c.replaceOwn(text)
	}
	return c.pathnameFrom(c.dirLink(dirfd), text)
}

// pathnameFrom is the pathname that begins in the directory a link in /proc leads to.
func (c *call) pathnameFrom(base, rel string) (pathname, error) {
	dir, err := c.linkPath(base)
	switch {
	case err == nil:
		return pathname{dir + "/" + rel, base, rel}, nil
	case err == errRemoved:
		full, err := fromRemoved(dir, rel)
		return pathname{full: full}, err
	case err == unix.ENAMETOOLONG:
		return pathname{base: base, rel: rel}, nil
	}
	return pathname{}, err
}

// fromRemoved is the absolute path of one that begins in a removed directory. From there
// "." and the way up still work, and there is nothing else.
func fromRemoved(dir, rel string) (string, error) {
	for strings.HasPrefix(rel, "./") {
		rel = strings.TrimLeft(rel[1:], "/")
	}
	switch {
	case rel == ".." || strings.HasPrefix(rel, "../"):
		return path.Dir(dir) + "/." + rel[2:], nil // which names no entry, as ".."
	case strings.Contains(strings.TrimRight(rel, "/"), "/"):
		return "", unix.ENOENT
	}
	return "", errRemoved
}

// linkPath is the path that a link of the process in /proc leads to, read once. A directory
// that was removed has its last path, with errRemoved. Other errors are those of a call with
// a descriptor that is not open, or not of a file.
func (c *call) linkPath(link string) (string, error) {
	for _, l := range c.links {
		if l.link == link {
			return l.path, nil
		}
	}
	name, err := c.readLink(link)
	switch {
	case err == unix.ENOENT:
		return "", unix.EBADF
	case err != nil:
		return "", err
	case !strings.HasPrefix(name, "/"):
		return "", unix.ENOTDIR
	}
	if last, ok := strings.CutSuffix(name, deleted); ok { // or the name itself ends so
		var st unix.Stat_t
		switch err := unix.Stat(link, &st); {
		case err == nil && st.Nlink == 0 && st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return "", unix.ENOTDIR
		case err != nil || st.Nlink == 0:
			return last, errRemoved
		}
	}
	c.links = append(c.links, procLink{link, name})
	return name, nil
}

// deleted is what the kernel adds to the name of a file that has none any more.
const deleted = " (deleted)"

// readlink reads a link in /proc, whose length is bounded.
func readlink(name string) (string, error) { return readlinkAt(unix.AT_FDCWD, name) }

func readlinkAt(dir int, name string) (string, error) {
	text, err := linkText(dir, name)
	if err == nil && len(text) == pathMax {
		return "", unix.ENAMETOOLONG
	}
	return text, err
}

// linkText is the text of a symbolic link in a directory, or of an open one if the name is
// empty.
func linkText(dir int, name string) (string, error) {
	var buf [pathMax]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	return string(buf[:max(n, 0)]), err
}

func selfFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// realPath is the path of an open file as seen inside: links in /proc show the path in the
// mount namespace of the file.
func realPath(fd int) (string, error) { return readlink(selfFD(fd)) }

// ownEntry is the rest of a path below the process's own directory in /proc, under any of
// the names that this has.
func ownEntry(path string) (rest string, own bool) {
	switch path {
	case "/dev/stdin":
		return "fd/0", true
	case "/dev/stdout":
		return "fd/1", true
	case "/dev/stderr":
		return "fd/2", true
	}
	if rest, own = strings.CutPrefix(path, "/dev/fd/"); own {
		return "fd/" + rest, true
	}
	if rest, own = strings.CutPrefix(path, "/proc/self/"); own {
		return rest, true
	}
	return strings.CutPrefix(path, "/proc/thread-self/")
}

// ownDescriptor is the number in a path by which a process reaches one of its descriptors.
func ownDescriptor(path string) (int32, bool) {
	rest, own := ownEntry(path)
	number, isFD := strings.CutPrefix(rest, "fd/")
	n, err := strconv.ParseInt(number, 10, 32)
	return int32(n), own && isFD && err == nil
}

// namesOwn reports whether a path is itself a link in /proc to a descriptor or a directory
// of the process, and not something below one.
func namesOwn(path string) bool {
	path = strings.TrimRight(path, "/")
	rest, own := ownEntry(path)
	_, isFD := ownDescriptor(path)
	return isFD || own && (rest == "cwd" || rest == "root")
}

// replaceOwn replaces the names by which a process reaches its own descriptors and
// directories, which would mean the broker's, by what they lead to.
func (c *call) replaceOwn(path string) (pathname, error) {
	rest, own := ownEntry(path)
	entry, below, _ := strings.Cut(rest, "/")
	switch {
	case own && entry == "root":
		return pathname{full: "/" + below}, nil
	case own && entry == "cwd":
	case own && entry == "fd":
		number, after, _ := strings.Cut(below, "/")
		entry, below = "fd/"+number, after
	default:
		return pathname{full: path}, nil
	}
	if below == "" {
		real, err := c.linkPath(c.proc(entry))
		if err != nil {
			return pathname{}, errNoPath
		}
		return pathname{full: real}, nil
	}
	p, err := c.pathnameFrom(c.proc(entry), below)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		err = errNoPath
	}
	return p, err
}

// numbered replaces /proc/self and /proc/thread-self, which mean nothing to the broker, by
// the number that the process has inside.
func (c *call) numbered(name string) string {
	if !strings.HasPrefix(name, "/proc/") {
		return name
	}
	for _, own := range []string{"/proc/self", "/proc/thread-self"} {
		if !pathx.Within(own, name) {
			continue
		}
		number := c.numberInside("\nNStgid:")
		if own == "/proc/thread-self" {
			number += "/task/" + c.numberInside("\nNSpid:")
		}
		return "/proc/" + number + name[len(own):]
	}
	return name
}

// A place is a name in a directory that is open.
type place struct {
	dir     int    // O_PATH
	dirPath string // real, as seen inside
	name    string
	// slash: the path ended with a slash.
	slash bool
	// host: the directory is the host's, because the name was granted during the run.
	host bool
	// device is the file system of what is there. kind sets it.
	device uint64
	// asked is the path by which the directory was looked up.
	asked string
	// borrowed: the descriptor is another place's.
	borrowed bool
}

func (p *place) close() {
	if !p.borrowed {
		unix.Close(p.dir)
	}
}

func (p *place) path() string { return join(p.dirPath, p.name) }

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// last is the name as the path ended. With a slash at its end the kernel asks for a directory
// in some calls, and follows a link in no call that changes a name.
func (p *place) last() string {
	if p.slash {
		return p.name + "/"
	}
	return p.name
}

// readOnly reports whether the place is on a read-only mount.
func (p *place) readOnly() bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(p.dir, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}

// A kind is the type of file at a place.
type kind uint32

const (
	missing kind = 0
	// unknown: the place was not looked at. It is the kind of no file.
	unknown kind = 1
)

// kind looks up what is at the place. Links are not followed.
func (p *place) kind() (kind, error) {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return missing, nil
	}
	p.device = st.Dev
	return kind(st.Mode & unix.S_IFMT), err
}

// openRoot opens the sandbox's root, which all its processes share: none of them has the
// right to change it.
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

func openat2(dir int, name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR { // a rename raced with ".."
			return fd, err
		}
	}
}

// openInside opens a path as the sandboxed processes see it. Links in /proc that stand for
// open files are not followed: they would mean the broker's own.
func (b *Broker) openInside(name string, flags uint64) (int, error) {
	return openat2(b.root, name, flags, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// openDir opens a directory and finds its real path. Most paths have no link and are what
// they seem: asking for the real one costs as much as opening.
func (b *Broker) openDir(name string) (fd int, real string, err error) {
	if !strings.Contains(name, "..") {
		real = path.Clean(name)
		fd, err = openat2(b.root, real, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS)
		if err != unix.ELOOP { // there was no link, so that following them changes nothing
			return fd, real, err
		}
	}
	if fd, err = b.openInside(name, unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return -1, "", err
	}
	if real, err = realPath(fd); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, real, nil
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

// locate finds the directory and the name that an absolute path means.
func (b *Broker) locate(full string) (*place, error) {
	if unnamed(full) {
		return nil, errUnnamed
	}
	trimmed := strings.TrimRight(full, "/")
	slash := len(trimmed) < len(full)
	if b.asks.given() {
		return b.locateGiven(trimmed, slash)
	}
	cut := strings.LastIndexByte(trimmed, '/') + 1
	dir, real, err := b.openDir(full[:cut])
	if err != nil {
		return nil, err
	}
	return &place{dir: dir, dirPath: real, name: trimmed[cut:], slash: slash, asked: full[:cut]}, nil
}

// beside is the place of an absolute path in the directory of another place, or nil if it is in
// another directory or names no entry. One directory is looked up once for both names of a call.
func (p *place) beside(full string) *place {
	if p == nil || p.asked == "" || !strings.HasPrefix(full, p.asked) || unnamed(full) {
		return nil
	}
	name := strings.TrimRight(full[len(p.asked):], "/")
	if name == "" || strings.Contains(name, "/") {
		return nil
	}
	return &place{dir: p.dir, dirPath: p.dirPath, name: name, slash: strings.HasSuffix(full, "/"), borrowed: true}
}

// locate finds the directory and the name that a pathname means.
func (c *call) locate(p pathname) (*place, error) {
	at, err := (*place)(nil), error(unix.ENAMETOOLONG)
	if p.full != "" {
		at, err = c.b.locate(p.full)
	}
	if !p.beyond(err) {
		return at, err
	}
	if unnamed(p.rel) {
		return nil, errUnnamed
	}
	trimmed := strings.TrimRight(p.rel, "/")
	cut := strings.LastIndexByte(trimmed, '/') + 1
	dir, real, err := c.openDirFrom(p.base, trimmed[:cut])
	if err != nil {
		return nil, err
	}
	at = &place{dir: dir, dirPath: real, name: trimmed[cut:], slash: len(trimmed) < len(p.rel)}
	if c.b.asks.gave(at.path()) { // which is the host's, and not what the process has open
		at.close()
		return nil, unix.EACCES
	}
	return at, nil
}

// follow finds the place that a pathname means behind symbolic links, but for those at which
// stop is true. With an error it returns the pathname that could not be looked up. Where blind,
// unless nil, is true, it does not look what is at the place.
func (c *call) follow(p pathname, stop, blind func(at *place) bool) (at *place, k kind, last pathname, err error) {
	for range maxLinks + 1 {
		if at, err = c.locate(p); err != nil {
			return nil, missing, p, err
		}
		if blind != nil && blind(at) {
			return at, unknown, p, nil
		}
		if k, err = at.kind(); err == nil && (k != unix.S_IFLNK || stop(at)) {
			return at, k, p, nil
		}
		c.opened = append(c.opened, at.dir) // the next pathname may begin there
		if err == nil {
			p, err = c.behind(at)
		} else {
			p = pathname{full: at.path()}
		}
		if err != nil {
			return nil, missing, p, err
		}
	}
	return nil, missing, p, unix.ELOOP
}

// behind is the pathname that the symbolic link at a place leads to. It is the link's own
// text, with errNoPath, if that is a descriptor of the process without a path.
func (c *call) behind(at *place) (pathname, error) {
	text, err := linkText(at.dir, at.name)
	if err != nil {
		return pathname{full: at.path()}, err
	}
	if _, own := ownDescriptor(text); own {
		if p, err := c.replaceOwn(text); err != nil {
			return pathname{full: text}, err
		} else if !at.slash {
			return p, nil
		}
	}
	if at.slash {
		text += "/"
	}
	if !strings.HasPrefix(text, "/") {
		return pathname{at.dirPath + "/" + text, selfFD(at.dir), text}, nil
	}
	p, err := c.replaceOwn(text)
	if err != nil {
		p = pathname{full: text}
	}
	p.full = c.numbered(p.full)
	return p, nil
}

// openPath opens what a pathname means.
func (c *call) openPath(p pathname, flags uint64) (int, error) {
	fd, err := -1, error(unix.ENAMETOOLONG)
	if p.full != "" {
		fd, err = c.b.openInside(p.full, flags)
	}
	if !p.beyond(err) {
		return fd, err
	}
	if unnamed(p.rel) {
		fd, _, err = c.openDirFrom(p.base, p.rel)
		return fd, err
	}
	at, err := c.followFor(p, flags)
	if err != nil {
		return -1, err
	}
	defer at.close()
	return unix.Openat(at.dir, at.last(), int(flags)|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// followFor follows the links that an open with these flags follows.
func (c *call) followFor(p pathname, flags uint64) (*place, error) {
	at, _, _, err := c.follow(p, func(at *place) bool { return flags&unix.O_NOFOLLOW != 0 && !at.slash }, nil)
	return at, err
}

// placeOf is the place of a file that openPath has opened.
func (c *call) placeOf(fd int, p pathname, flags uint64) (*place, error) {
	real, err := realPath(fd)
	if err == nil {
		at, err := c.b.locate(real)
		if !p.beyond(err) {
			return at, err
		}
	} else if !p.beyond(err) {
		return nil, err
	}
	at, err := c.followFor(p, flags)
	if err != nil {
		return nil, err
	}
	is, err := identityOf(fd, "")
	if there, thereErr := identityOf(at.dir, at.name); err != nil || thereErr != nil || is != there {
		at.close()
		return nil, unix.ENOENT
	}
	return at, nil
}

// openDirFrom opens a directory by its path from one that the process has open, and finds its
// real path. That path has to mean the same directory inside.
func (c *call) openDirFrom(base, rel string) (fd int, real string, err error) {
	dir, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil && !c.valid() { // the number may mean another process by now
		unix.Close(dir)
		err = unix.ESRCH
	}
	if err != nil {
		return -1, "", err
	}
	if fd, err = c.b.descend(dir, rel); err != nil {
		return -1, "", err
	}
	if real, err = folderPath(fd); err == nil && !c.shows(fd, real) {
		err = unix.EACCES
	}
	if err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, real, nil
}

// descend opens a directory by its path from another one, which it closes. Links are
// followed by name, because an absolute one begins in the sandbox's root.
func (b *Broker) descend(dir int, rel string) (int, error) {
	names := strings.Split(rel, "/")
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == "" {
			continue
		}
		text, err := linkText(dir, name)
		switch {
		case err == nil && links == maxLinks:
			unix.Close(dir)
			return -1, unix.ELOOP
		case err == nil && strings.HasPrefix(text, "/"):
			unix.Close(dir)
			return b.openInside(text+"/"+strings.Join(names, "/"), unix.O_PATH|unix.O_DIRECTORY)
		case err == nil:
			links++
			names = append(strings.Split(text, "/"), names...)
			continue
		}
		next, err := openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
		unix.Close(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

const (
	// maxHeld bounds the path of a directory that a process has open, and maxAbove how many
	// names are compared to find it: other sandboxes may wait meanwhile.
	maxHeld  = 4 * pathMax
	maxAbove = 2000
)

// folderPath is realPath for a directory, whose path may be longer than the kernel reports.
// Then the missing names are looked for in the directories above.
func folderPath(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Nlink == 0 {
		return "", errRemoved
	}
	real, err := realPath(fd)
	if err != unix.ENAMETOOLONG {
		return real, err
	}
	var names []string // from the last one up
	size, left := 0, maxAbove
	at, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	for err == nil {
		var above int
		if above, err = unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
		name, found := nameIn(above, at, &left)
		unix.Close(at)
		at = above
		names, size = append(names, name), size+len(name)
		if !found || size > maxHeld {
			break
		}
		if real, err := realPath(at); err != unix.ENAMETOOLONG {
			unix.Close(at)
			slices.Reverse(names)
			return real + "/" + strings.Join(names, "/"), err
		}
	}
	unix.Close(at)
	return "", unix.ENAMETOOLONG
}

// nameIn finds the name of a directory in the one above. No directory has two.
func nameIn(above, dir int, left *int) (string, bool) {
	fd, err := unix.Openat(above, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	want, err := identityOf(dir, "")
	for err == nil && *left > 0 {
		var names []string
		names, err = f.Readdirnames(256)
		for _, name := range names {
			*left--
			if is, err := identityOf(fd, name); err == nil && is == want {
				return name, true
			}
		}
	}
	return "", false
}

// An identity is that of a file, and of the mount by which it is seen.
type identity struct {
	major, minor uint32
	inode, mount uint64
}

func identityOf(dir int, name string) (identity, error) {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_INO|unix.STATX_MNT_ID, &st)
	return identity{st.Dev_major, st.Dev_minor, st.Ino, st.Mnt_id}, err
}

// sameFile reports whether two descriptors are of one file or directory.
func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// shows reports whether the path that the kernel reports of a directory means that directory
// inside. It does not if the directory is in a mount of another namespace, as a descriptor
// that was passed in may be; if another mount lies over it; or if somebody outside moved it
// out of the mount, which makes ".." fail. In /proc, a name means something else to each process.
func (c *call) shows(fd int, real string) bool {
	if pathx.Within("/proc", real) {
		return false
	}
	is, err := identityOf(fd, "")
	if err != nil {
		return false
	}
	up, err := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(up)
	mounts, err := os.ReadFile(c.proc("mountinfo"))
	return err == nil && c.valid() && mountAt(mounts, real) == strconv.FormatUint(is.mount, 10)
}

// mountAt is the number of the mount that a path is in, by the text of mountinfo. Of mounts at
// one place, the last is on top.
func mountAt(mounts []byte, real string) string {
	best, number := "", ""
	for line := range bytes.Lines(mounts) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		if at := mountEscapes.Replace(fields[4]); len(at) >= len(best) && pathx.Within(at, real) {
			best, number = at, fields[0]
		}
	}
	return number
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// wouldGuard reports whether a path that leads nowhere is in a guarded directory as far as it
// leads.
func (b *Broker) wouldGuard(full string) bool {
	if full == "" { // it may be anywhere
		return true
	}
	if !strings.Contains(full, "..") {
		clean := path.Clean(full)
		fd, err := openat2(b.root, path.Dir(clean), unix.O_PATH, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS)
		if err == nil {
			unix.Close(fd)
		}
		if err != unix.ELOOP {
			return b.guards(clean)
		}
	}
	w := b.walkPath(full)
	_ = w.walk(1) // up to where it fails
	return b.guards(path.Join(w.at, w.rest[len(w.rest)-1]))
}

// A walker finds what a path means component by component, also where a rule hides a part of
// it from the sandbox. It follows links by name, in the sandbox's view: what a link leads to
// is judged like any other path, wherever the link is.
type walker struct {
	b     *Broker
	rest  []string // what is still to be looked up
	at    string   // the real directory so far
	links int
	// unseen: the walker could not look further, because of a rule or a missing file. The
	// rest is taken as it was written.
	unseen bool
}

func (b *Broker) walkPath(full string) *walker {
	return &walker{b: b, at: "/", rest: strings.Split(strings.TrimRight(full, "/"), "/")}
}

// meaning is the path that a name would have if nothing were hidden, as far as that can be
// seen.
func (b *Broker) meaning(full string) (string, error) {
	w := b.walkPath(full)
	err := w.walk(0)
	return w.at, err
}

// walk looks up all but the last n components. The error is ELOOP, or ENOTDIR for a file that
// has more components behind it.
func (w *walker) walk(n int) error {
	for len(w.rest) > n {
		name := w.rest[0]
		w.rest = w.rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			w.at = path.Dir(w.at)
			continue
		}
		next := path.Join(w.at, name)
		if w.unseen {
			w.at = next
			continue
		}
		k, text, err := w.b.lookAt(next)
		switch {
		case err == nil && k == unix.S_IFLNK:
			if w.links++; w.links > maxLinks {
				return unix.ELOOP
			}
			if strings.HasPrefix(text, "/") {
				w.at = "/"
			}
			w.rest = append(strings.Split(text, "/"), w.rest...)
			continue
		case err == nil && k != unix.S_IFDIR && len(w.rest) > 0:
			return unix.ENOTDIR
		case err != nil && !w.b.asks.leadsTo(next):
			w.unseen = true
		}
		w.at = next
	}
	return nil
}

// lookAt finds what is at a path whose directory is real, and the text of a link there.
func (b *Broker) lookAt(name string) (k kind, text string, err error) {
	p, err := b.placeIn(path.Dir(name), path.Base(name))
	if err != nil {
		return missing, "", err
	}
	defer p.close()
	switch k, err = p.kind(); {
	case err != nil:
	case k == missing:
		err = unix.ENOENT
	case k == unix.S_IFLNK:
		text, err = linkText(p.dir, p.name)
	}
	return k, text, err
}

// placeIn opens a directory whose path is real, for a name in it: the host's if the name was
// granted during the run, otherwise the sandbox's. A granted path is not in the sandbox, where
// the kernel hides it as before. It is looked up from the host's root, through no symbolic
// link, so that the path is what it seems.
func (b *Broker) placeIn(dir, name string) (p *place, err error) {
	p = &place{dirPath: dir, name: name}
	if !b.asks.gave(p.path()) {
		p.dir, err = openat2(b.root, dir, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_SYMLINKS)
		return p, err
	}
	p.host = true
	p.dir, err = b.openHostDir(p, unix.EACCES)
	return p, err
}

// openHostDir opens the directory of the host that a place stands for. It returns failed if
// there is none, or the file has another name there.
func (b *Broker) openHostDir(p *place, failed error) (int, error) {
	behind, ok := judge.FindBehind(b.asks.Plan, p.path())
	if !ok || path.Base(behind.Path) != p.name {
		return -1, failed
	}
	return openat2(unix.AT_FDCWD, path.Dir(behind.Path), unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
}

// locateGiven is locate where something was granted during the run.
func (b *Broker) locateGiven(trimmed string, slash bool) (*place, error) {
	w := b.walkPath(trimmed)
	if err := w.walk(1); err != nil {
		return nil, err
	}
	if w.unseen {
		return nil, unix.ENOENT
	}
	name := w.rest[0]
	if name == "" || name == "." || name == ".." { // of a link
		return nil, errUnnamed
	}
	p, err := b.placeIn(w.at, name)
	if err != nil {
		return nil, err
	}
	p.slash = slash
	return p, nil
}

// openGiven opens what was granted at a path, with O_PATH, and returns its path inside. found
// is false if the path was not granted.
func (b *Broker) openGiven(full string) (fd int, real string, found bool, err error) {
	if !b.asks.given() || full == "" {
		return -1, "", false, nil
	}
	if real, err = b.meaning(full); err != nil || !b.asks.gave(real) {
		return -1, "", false, nil
	}
	p, err := b.placeIn(path.Dir(real), path.Base(real))
	if err != nil {
		return -1, real, true, err
	}
	defer p.close()
	fd, err = unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return fd, real, true, err
}

// toOneSide makes two places ones of the host if one of them is: the kernel moves nothing
// from one mount to another.
func (b *Broker) toOneSide(from, to *place) error {
	if from.host == to.host {
		return nil
	}
	p := to
	if to.host {
		p = from
	}
	fd, err := b.openHostDir(p, unix.EXDEV)
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
