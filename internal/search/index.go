package search

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// A folder is what is known about one folder since it was read. In an index every folder
// comes after its parent.
type folder struct {
	// path is relative to the root, which is ".". In memory a NUL follows it, so that it can be
	// passed to the kernel without a copy.
	path   string
	parent int32
	stamp  stamp
	// settled says that every change since the folder was read also changed the stamp.
	settled bool
	// local says that only this kernel changes the folder.
	local bool
	// names are the files in it that match the search.
	names []string
}

// A stamp identifies a state of a folder. Only the kernel sets the change time, when a name in
// the folder is made, removed or renamed.
type stamp struct {
	dev, ino uint64
	sec      int64
	nsec     uint32
}

// indexMagic changes when the format of the file changes.
const indexMagic = "cloche search 4\n"

// maxIndex bounds the size of an index: room for maxFolders with long paths.
const maxIndex = 64 << 20

// indexFile returns the path of a search's index in a cache folder. The name depends on
// the folder and the names that are searched for.
func indexFile(cache string, s hostfs.Search) string {
	if cache == "" {
		return ""
	}
	parts := append([]string{indexMagic, s.Root, ""}, s.Names...)
	parts = append(append(parts, ""), NotSearched[:]...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return filepath.Join(cache, "search", hex.EncodeToString(sum[:16]))
}

// The flags of a folder in the file.
const (
	flagSettled = 1 << iota
	flagLocal
)

// encode writes an index: for each folder its numbers as varints and its texts with a NUL after
// each, and at the end a check sum. The check sum detects an incomplete file. It does not
// protect against attacks; the check of the file's owner does.
func encode(folders []folder) []byte {
	b := make([]byte, 0, len(indexMagic)+len(folders)*96+8)
	b = append(b, indexMagic...)
	b = binary.AppendUvarint(b, uint64(len(folders)))
	for i := range folders {
		f := &folders[i]
		b = appendText(b, f.path)
		for _, n := range [...]uint64{uint64(f.parent + 1), f.stamp.dev, f.stamp.ino, uint64(f.stamp.sec), uint64(f.stamp.nsec), f.flags(), uint64(len(f.names))} {
			b = binary.AppendUvarint(b, n)
		}
		for _, name := range f.names {
			b = appendText(b, name)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func (f *folder) flags() (flags uint64) {
	if f.settled {
		flags |= flagSettled
	}
	if f.local {
		flags |= flagLocal
	}
	return flags
}

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(append(b, text...), 0)
}

// decode reads what encode wrote.
func decode(data []byte) (folders []folder, ok bool) {
	if len(data) < len(indexMagic)+4 || string(data[:len(indexMagic)]) != indexMagic {
		return nil, false
	}
	body := data[:len(data)-4]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(data[len(body):]) {
		return nil, false
	}
	r := &indexReader{rest: string(body[len(indexMagic):])}
	n := r.number()
	if n == 0 || n > uint64(len(r.rest)) {
		return nil, false
	}
	folders = make([]folder, n)
	for i := range folders {
		f := &folders[i]
		f.path = r.text()
		f.parent = int32(r.number()) - 1
		f.stamp = stamp{dev: r.number(), ino: r.number(), sec: int64(r.number()), nsec: uint32(r.number())}
		flags := r.number()
		f.settled, f.local = flags&flagSettled != 0, flags&flagLocal != 0
		for range r.number() {
			if r.bad {
				break
			}
			f.names = append(f.names, r.text())
		}
		if r.bad || !placed(folders, i) {
			return nil, false
		}
	}
	return folders, r.rest == ""
}

// An indexReader reads numbers and texts until the data is invalid.
type indexReader struct {
	rest string
	bad  bool
}

func (r *indexReader) number() uint64 {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.bad, r.rest = true, ""
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *indexReader) text() string {
	n := r.number()
	if n >= uint64(len(r.rest)) || r.rest[n] != 0 {
		r.bad, r.rest = true, ""
		return ""
	}
	text := r.rest[:n]
	r.rest = r.rest[n+1:]
	return text
}

// placed reports whether a folder is the root, or comes after its parent and has a valid
// path and valid names.
func placed(folders []folder, i int) bool {
	f := &folders[i]
	for _, name := range f.names {
		if !isName(name) {
			return false
		}
	}
	if i == 0 {
		return f.parent == -1 && f.path == "."
	}
	if f.parent < 0 || int(f.parent) >= i {
		return false
	}
	name, ok := strings.CutPrefix(f.path, entryPath(folders[f.parent].path, ""))
	return ok && isName(name)
}

func isName(name string) bool {
	return name != "" && name != "." && name != ".." && strings.IndexByte(name, '/') < 0
}

// terminated returns the joined parts as a string with a NUL after it in memory.
func terminated(parts ...string) string {
	s := strings.Join(append(parts, "\x00"), "")
	return s[:len(s)-1]
}

// entryPath returns the path of an entry in a folder of the tree.
func entryPath(folder, name string) string {
	if folder == "." {
		return name
	}
	return folder + "/" + name
}
