//go:build amd64 || arm64

package notify

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// A process can use a directory that it holds, as its working directory or a descriptor,
// when it could not open the path of it: a directory above may not be searched any more, or
// the path has more bytes than the kernel takes. So where a path cannot be followed from
// the root it is followed from there. The directory that is found is judged by its real path,
// as any other: the kernel tells it, or the directories above do. And it has to be the
// one that this path means inside: see shows.

// A way is a path, as seen inside, and the directory that it begins in.
type way struct {
	whole string // absolute; empty if it is too long to be told
	// link is a link of /proc to the directory that rest begins in. It is empty if the path
	// was absolute.
	link, rest string
}

// from is the way from the directory that a link of the process in /proc means.
func (c *call) from(link, rest string) (way, error) {
	dir, err := c.named(link)
	switch {
	case err == nil:
		return way{dir + "/" + rest, link, rest}, nil
	case err == errRemoved:
		whole, err := fromRemoved(dir, rest)
		return way{whole: whole}, err
	case err == unix.ENAMETOOLONG:
		return way{link: link, rest: rest}, nil
	}
	return way{}, err
}

// beyond reports whether a path may lead somewhere although it could not be followed from the
// root.
func (w way) beyond(err error) bool {
	return w.link != "" && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENAMETOOLONG))
}

// locate finds the directory and the name that a way means.
func (c *call) locate(w way) (*place, error) {
	at, err := (*place)(nil), error(unix.ENAMETOOLONG)
	if w.whole != "" {
		at, err = c.b.locate(w.whole)
	}
	if !w.beyond(err) {
		return at, err
	}
	if unnamed(w.rest) {
		return nil, errUnnamed
	}
	trimmed := strings.TrimRight(w.rest, "/")
	cut := strings.LastIndexByte(trimmed, '/') + 1
	dir, real, err := c.heldFolder(w.link, trimmed[:cut])
	if err != nil {
		return nil, err
	}
	at = &place{dir: dir, dirPath: real, name: trimmed[cut:], slash: len(trimmed) < len(w.rest)}
	if c.b.asks.gave(at.path()) { // which is the host's, and not what the process holds
		at.close()
		return nil, unix.EACCES
	}
	return at, nil
}

// hold is Broker.inside for a way.
func (c *call) hold(w way, flags uint64) (int, error) {
	fd, err := -1, error(unix.ENAMETOOLONG)
	if w.whole != "" {
		fd, err = c.b.inside(w.whole, flags)
	}
	if !w.beyond(err) {
		return fd, err
	}
	if unnamed(w.rest) {
		fd, _, err = c.heldFolder(w.link, w.rest)
		return fd, err
	}
	at, err := c.follow(w, flags)
	if err != nil {
		return -1, err
	}
	defer at.close()
	return unix.Openat(at.dir, at.last(), int(flags)|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// follow finds the place that a way means, behind the links that an open with these flags
// follows.
func (c *call) follow(w way, flags uint64) (*place, error) {
	at, err := c.locate(w)
	for range maxLinks {
		if err != nil {
			return nil, err
		}
		k, kindErr := at.kind()
		if kindErr != nil {
			at.close()
			return nil, kindErr
		}
		if k != unix.S_IFLNK || flags&unix.O_NOFOLLOW != 0 && !at.slash {
			return at, nil
		}
		link := at
		if w, err = c.behind(link); err == nil {
			at, err = c.locate(w)
		}
		link.close()
	}
	if err == nil {
		at.close()
		err = unix.ELOOP
	}
	return nil, err
}

// placeOf is the place of a file that hold has opened.
func (c *call) placeOf(fd int, w way, flags uint64) (*place, error) {
	real, err := realPath(fd)
	if err == nil {
		at, err := c.b.locate(real)
		if !w.beyond(err) {
			return at, err
		}
	} else if !w.beyond(err) {
		return nil, err
	}
	at, err := c.follow(w, flags)
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

// behind is the way that the symbolic link at a place leads. The place has to be open until
// the way was followed.
func (c *call) behind(at *place) (way, error) {
	text, err := linkText(at.dir, at.name)
	if err != nil {
		return way{}, err
	}
	if at.slash {
		text += "/"
	}
	if !strings.HasPrefix(text, "/") {
		return way{at.dirPath + "/" + text, selfFD(at.dir), text}, nil
	}
	if w, err := c.own(text); err == nil {
		return w, nil
	}
	return way{whole: text}, nil
}

// heldFolder opens a directory by its path from one that the process holds, and finds its
// real path.
func (c *call) heldFolder(link, rest string) (fd int, real string, err error) {
	base, err := unix.Open(link, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil && !c.valid() { // the number may mean another process by now
		unix.Close(base)
		err = unix.ESRCH
	}
	if err != nil {
		return -1, "", err
	}
	if fd, err = c.b.descend(base, rest); err != nil {
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
func (b *Broker) descend(dir int, rest string) (int, error) {
	names := strings.Split(rest, "/")
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
			return b.inside(text+"/"+strings.Join(names, "/"), unix.O_PATH|unix.O_DIRECTORY)
		case err == nil:
			links++
			names = append(strings.Split(text, "/"), names...)
			continue
		}
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		next, err := unix.Openat2(dir, name, &how)
		unix.Close(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

const (
	// maxHeld bounds the path of a directory that a process holds, and maxAbove how many
	// names are looked at to find it: other sandboxes may wait meanwhile.
	maxHeld  = 4 * pathMax
	maxAbove = 2000
)

// folderPath is realPath for a directory, whose path may be longer than the kernel tells. Then
// the names that are missing are found in the directories above.
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

// shows reports whether a path, which the kernel tells of a directory, means it inside. It
// does not if the directory is in a mount of another namespace, as a descriptor that was
// passed in may be; if another mount lies over it; or if somebody outside has moved it out
// of the mount, as ".." then says. In /proc, a name means something else to each process.
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

// mountAt is the number of the mount that a path is in, by the text of mountinfo. Of
// mounts at one place, the last is on top.
func mountAt(mounts []byte, real string) string {
	best, number := "", ""
	for line := range bytes.Lines(mounts) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		if at := unescaped(fields[4]); len(at) >= len(best) && pathx.Within(at, real) {
			best, number = at, fields[0]
		}
	}
	return number
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

func unescaped(field string) string { return mountEscapes.Replace(field) }
