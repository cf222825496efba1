// Package gitindex reports whether git tracks a file with exactly its present content. It reads
// the index of a repository. Commands can write the index, so a match means only that somebody
// put the hash of that content there. A command can do so only if it knows the content already.
// The package does not run git and follows none of its settings.
package gitindex

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"strconv"
)

// An Index is the list of files that a repository tracks.
type Index struct {
	entries map[string]entry
	sums    int // the length of a hash
}

type entry struct {
	sum   string
	twice bool // listed more than once, as during a merge
}

// ErrFormat is returned for a file that is not an index, or one that cannot be used: a split or
// sparse index may list fewer files than the repository tracks.
var ErrFormat = errors.New("not an index of git that can be read")

// The layout of an entry: 40 bytes of stat data, the hash, the flags.
const (
	statSize  = 40
	modeAt    = 24
	regular   = 0o100000
	typeMask  = 0o170000
	extended  = 0x4000
	stageMask = 0x3000
	nameMask  = 0x0fff
)

// Parse reads the content of an index file. It keeps only the entries whose path is wanted,
// because a repository may have a million.
func Parse(data []byte, wanted func(path []byte) bool) (*Index, error) {
	for _, size := range []int{sha1.Size, sha256.Size} {
		if x, err := parse(data, size, wanted); err == nil {
			return x, nil
		}
	}
	return nil, ErrFormat
}

// parse reads an index with hashes of the given length. Only the settings of the repository say
// which length it uses, so Parse tries both.
func parse(data []byte, size int, wanted func(path []byte) bool) (*Index, error) {
	if len(data) < 12+size || string(data[:4]) != "DIRC" {
		return nil, ErrFormat
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return nil, ErrFormat
	}
	x := &Index{entries: map[string]entry{}, sums: size}
	r := &reader{rest: data[12 : len(data)-size], version: version, size: size}
	for range count {
		if !r.next() {
			return nil, ErrFormat
		}
		if r.mode&typeMask == regular && wanted(r.path) {
			x.add(string(r.path), string(r.sum), r.stage)
		}
	}
	if !r.extensions() {
		return nil, ErrFormat
	}
	return x, nil
}

func (x *Index) add(path, sum string, stage bool) {
	_, twice := x.entries[path]
	x.entries[path] = entry{sum: sum, twice: twice || stage}
}

// A reader goes through the entries of an index.
type reader struct {
	rest    []byte
	version uint32
	size    int

	mode  uint32
	sum   []byte
	path  []byte
	stage bool // of a merge
}

func (r *reader) next() bool {
	head := statSize + r.size + 2
	if len(r.rest) < head+1 {
		return false
	}
	r.mode = binary.BigEndian.Uint32(r.rest[modeAt:])
	r.sum = r.rest[statSize:][:r.size]
	flags := binary.BigEndian.Uint16(r.rest[head-2:])
	r.stage = flags&stageMask != 0
	if flags&extended != 0 {
		head += 2
	}
	if len(r.rest) <= head {
		return false
	}
	if r.version == 4 {
		return r.shortened(head)
	}
	end := int(flags & nameMask)
	if end == nameMask { // the path has this length or is longer
		end = bytes.IndexByte(r.rest[head:], 0)
	}
	if end <= 0 || head+end >= len(r.rest) || r.rest[head+end] != 0 {
		return false
	}
	r.path = r.rest[head:][:end]
	// One to eight NULs make the entry's length a multiple of eight.
	length := (head + end + 8) &^ 7
	if length > len(r.rest) {
		return false
	}
	r.rest = r.rest[length:]
	return true
}

// shortened reads a path of format version 4: how many bytes to remove from the end of the
// previous path, and what to append.
func (r *reader) shortened(head int) bool {
	drop, n := offset(r.rest[head:])
	if n == 0 || drop > len(r.path) {
		return false
	}
	text := r.rest[head+n:]
	end := bytes.IndexByte(text, 0)
	if end < 0 {
		return false
	}
	r.path = append(bytes.Clone(r.path[:len(r.path)-drop]), text[:end]...)
	r.rest = text[end+1:]
	return len(r.path) > 0
}

// offset reads a number in the variable-length form that git uses in packs.
func offset(b []byte) (value, n int) {
	for ; n < len(b) && n < 5; n++ {
		value = value<<7 | int(b[n]&0x7f)
		if b[n]&0x80 == 0 {
			return value, n + 1
		}
		value++
	}
	return 0, 0
}

// extensions reads what follows the entries. It fails for an extension whose name begins with a
// lower-case letter, which changes the meaning of the list ("link" of a split index, "sdir" of a
// sparse one).
func (r *reader) extensions() bool {
	for len(r.rest) > 0 {
		if len(r.rest) < 8 || r.rest[0] < 'A' || r.rest[0] > 'Z' {
			return false
		}
		size := binary.BigEndian.Uint32(r.rest[4:])
		if uint64(size) > uint64(len(r.rest)-8) {
			return false
		}
		r.rest = r.rest[8+size:]
	}
	return true
}

// Has reports whether the index has the file exactly once, with this content.
func (x *Index) Has(path string, content []byte) bool {
	e, ok := x.entries[path]
	if !ok || e.twice {
		return false
	}
	var h hash.Hash
	if x.sums == sha1.Size {
		h = sha1.New()
	} else {
		h = sha256.New()
	}
	h.Write([]byte("blob " + strconv.Itoa(len(content)) + "\x00"))
	h.Write(content)
	return string(h.Sum(nil)) == e.sum
}
