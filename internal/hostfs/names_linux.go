package hostfs

import (
	"encoding/binary"
	"iter"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxListing limits a listing to a folder of some two hundred names. For a larger folder,
// listing takes longer than looking up the names that rules are about.
const maxListing = 8 << 10

// caseFolding marks a folder of ext4, F2FS, tmpfs or an overlay of them that ignores the case
// of names: FS_CASEFOLD_FL of linux/fs.h.
const caseFolding = 0x40000000

// Names implements [Lister] for local file systems that list every name which a look-up finds.
// An automounter, a network or a FUSE file system may not.
func (OS) Names(dir string) (names []string, ok bool) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	if !listsAll(fd) {
		return nil, false
	}
	var buf [maxListing]byte
	n, err := unix.Getdents(fd, buf[:])
	if err != nil || n < 0 {
		return nil, false
	}
	var rest [maxEntry]byte
	if more, err := unix.Getdents(fd, rest[:]); err != nil || more != 0 {
		return nil, false
	}
	names = make([]string, 0, n/(entryName+8))
	for name := range Entries(string(buf[:n])) {
		names = append(names, name)
	}
	return names, true
}

// listsAll reports whether a folder contains only the listed names, in the listed case. The
// case of ASCII letters may differ, as on an XFS made for that.
func listsAll(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
	default:
		return false
	}
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	return err == nil && flags&caseFolding == 0
}

// The layout of struct linux_dirent64: inode, offset, length, type, name.
const (
	entryLength = int(unsafe.Offsetof(unix.Dirent{}.Reclen))
	entryType   = int(unsafe.Offsetof(unix.Dirent{}.Type))
	entryName   = int(unsafe.Offsetof(unix.Dirent{}.Name))
	maxEntry    = int(unsafe.Sizeof(unix.Dirent{}))
)

// Entries yields the name and the type (DT_*) of each entry in the output of getdents64,
// except "." and "..". Names are substrings of text.
func Entries(text string) iter.Seq2[string, byte] {
	return func(yield func(string, byte) bool) {
		for len(text) > entryName {
			size := int(binary.NativeEndian.Uint16([]byte(text[entryLength : entryLength+2])))
			if size <= entryName || size > len(text) {
				return
			}
			name, _, ok := strings.Cut(text[entryName:size], "\x00")
			if !ok || name != "." && name != ".." && !yield(name, text[entryType]) {
				return
			}
			text = text[size:]
		}
	}
}
