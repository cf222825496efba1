package host

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
)

// A searchIndex is what a search knows of a tree: its folders, what each of them
// was when it was read, and the names in it that the search is for. Every folder
// comes after the one that holds it.
//
// It answers for nothing by itself: a folder's names hold only while the folder
// still is what its stamp says.
//
// One of a large tree is kept in two files. The near index has the upper folders,
// which every search looks at, and those on the way to a file that was found; the
// whole one has all folders.
type searchIndex struct {
	folders []searchFolder
	// later is how many more folders the whole index has, 0 if this is it.
	later uint32
	// unseen and omitted are those of the whole tree, unread the folders for which
	// there was no time: the next search goes on with them. All are of a near index.
	unseen, omitted, unread uint32
	// looked is when all folders were looked at, in seconds.
	looked int64
}

// A searchFolder is one folder of the tree.
type searchFolder struct {
	// path is relative to the root, which is "."; a NUL follows it in memory, so
	// that the kernel can be given it as it is.
	path   string
	parent int32
	stamp  folderStamp
	// settled: every change since the folder was read has changed the stamp.
	settled bool
	// left is how many of its folders this index does not have, and leftSum the sum
	// of their names: whether one of them is new can be told without the names.
	left    uint32
	leftSum uint64
	// watchable: only this kernel changes the folder.
	watchable bool
	// names are those that the search is for.
	names []string
}

// A folderStamp is a state of a folder. The kernel sets the change time, and no
// program can; any name that is made, removed or renamed in a folder changes it.
type folderStamp struct {
	dev, ino uint64
	sec      int64
	nsec     uint32
}

// searchMagic changes with the layout of the file and with notSearched's meaning.
const searchMagic = "cloche search 3\n"

const (
	searchHeader = len(searchMagic) + sha256.Size + 7*4 + 8
	searchRecord = 56
	searchSum    = 8
	// maxSearchIndex is the most that is read of an index: room for as many folders
	// as a search looks into, with long paths.
	maxSearchIndex = 16 << 20
)

var errSearchIndex = errors.New("the index of a search is damaged")

// checkSum finds damage: a file that was not written to its end, or a bit that
// changed. Against malice there is the owner of the file. It needs no table, which
// for the sums of hash/crc32 takes longer to make than a near index to read.
func checkSum(b []byte) uint64 {
	const prime = 0x9e3779b97f4a7c15
	h := uint64(len(b))
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ binary.LittleEndian.Uint64(b)) * prime
		h ^= h >> 32
	}
	for _, c := range b {
		h = (h ^ uint64(c)) * prime
	}
	return h ^ h>>32
}

// searchKey is what an index is for.
func searchKey(s Search) [sha256.Size]byte {
	parts := append([]string{s.Root, ""}, s.Names...)
	parts = append(parts, "")
	for _, n := range &notSearched {
		parts = append(parts, n.Name)
	}
	return sha256.Sum256([]byte(strings.Join(parts, "\x00")))
}

// searchFile is where the index of a search is kept in a cache folder.
func searchFile(cache string, key [sha256.Size]byte) string {
	if cache == "" {
		return ""
	}
	return filepath.Join(cache, "search", hex.EncodeToString(key[:16]))
}

// encode writes the index: a header, a record for each folder, the places of the
// names, all texts, and a check sum.
func (x *searchIndex) encode(key [sha256.Size]byte) []byte {
	le := binary.LittleEndian
	names, texts := 0, 0
	for i := range x.folders {
		f := &x.folders[i]
		names += len(f.names)
		texts += len(f.path) + 1
		for _, n := range f.names {
			texts += len(n) + 1
		}
	}
	b := make([]byte, 0, searchHeader+len(x.folders)*searchRecord+names*4+texts+searchSum)
	b = append(append(b, searchMagic...), key[:]...)
	b = le.AppendUint32(b, uint32(len(x.folders)))
	b = le.AppendUint32(b, uint32(names))
	b = le.AppendUint32(b, uint32(texts))
	for _, n := range [...]uint32{x.later, x.unseen, x.omitted, x.unread} {
		b = le.AppendUint32(b, n)
	}
	b = le.AppendUint64(b, uint64(x.looked))
	places := make([]byte, 0, names*4)
	text := make([]byte, 0, texts)
	for i := range x.folders {
		f := &x.folders[i]
		b = le.AppendUint32(b, uint32(len(text)))
		text = append(append(text, f.path...), 0)
		b = le.AppendUint32(b, uint32(f.parent))
		b = le.AppendUint64(b, f.stamp.dev)
		b = le.AppendUint64(b, f.stamp.ino)
		b = le.AppendUint64(b, uint64(f.stamp.sec))
		b = le.AppendUint32(b, f.stamp.nsec)
		b = le.AppendUint32(b, f.left<<1|asBit(f.settled))
		b = le.AppendUint32(b, uint32(len(places)/4))
		b = le.AppendUint32(b, uint32(len(f.names)))
		b = le.AppendUint64(b, f.leftSum)
		for _, n := range f.names {
			places = le.AppendUint32(places, uint32(len(text)))
			text = append(append(text, n...), 0)
		}
	}
	b = append(append(b, places...), text...)
	return le.AppendUint64(b, checkSum(b))
}

func asBit(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// decodeSearchIndex reads what encode wrote. Every place is checked, and that
// each folder lies in its parent: a file that is not as it should be is none.
func decodeSearchIndex(data []byte, key [sha256.Size]byte) (*searchIndex, error) {
	le := binary.LittleEndian
	if len(data) < searchHeader+searchSum || string(data[:len(searchMagic)]) != searchMagic || string(data[len(searchMagic):][:len(key)]) != string(key[:]) {
		return nil, errSearchIndex
	}
	body := data[:len(data)-searchSum]
	if checkSum(body) != le.Uint64(data[len(body):]) {
		return nil, errSearchIndex
	}
	counts := body[len(searchMagic)+len(key):]
	n, names, texts := int(le.Uint32(counts)), int(le.Uint32(counts[4:])), int(le.Uint32(counts[8:]))
	if n == 0 || searchHeader+n*searchRecord+names*4+texts != len(body) {
		return nil, errSearchIndex
	}
	records := body[searchHeader:]
	d := &searchDecoder{places: records[n*searchRecord:][:names*4], text: string(records[n*searchRecord+names*4:])}
	x := &searchIndex{
		folders: make([]searchFolder, n), later: le.Uint32(counts[12:]), unseen: le.Uint32(counts[16:]),
		omitted: le.Uint32(counts[20:]), unread: le.Uint32(counts[24:]), looked: int64(le.Uint64(counts[28:])),
	}
	for i := range x.folders {
		if !d.folder(x, i, records[i*searchRecord:][:searchRecord]) {
			return nil, errSearchIndex
		}
	}
	return x, nil
}

type searchDecoder struct {
	places []byte
	text   string
}

func (d *searchDecoder) folder(x *searchIndex, i int, r []byte) (ok bool) {
	le := binary.LittleEndian
	f := &x.folders[i]
	if f.path, ok = d.at(le.Uint32(r)); !ok {
		return false
	}
	f.parent = int32(le.Uint32(r[4:]))
	f.stamp = folderStamp{dev: le.Uint64(r[8:]), ino: le.Uint64(r[16:]), sec: int64(le.Uint64(r[24:])), nsec: le.Uint32(r[32:])}
	flags := le.Uint32(r[36:])
	f.settled, f.left = flags&1 != 0, flags>>1
	f.watchable = f.settled
	f.leftSum = le.Uint64(r[48:])
	first, count := int(le.Uint32(r[40:])), int(le.Uint32(r[44:]))
	if first < 0 || count < 0 || first+count > len(d.places)/4 {
		return false
	}
	for j := first; j < first+count; j++ {
		name, ok := d.at(le.Uint32(d.places[j*4:]))
		if !ok || !isEntryName(name) {
			return false
		}
		f.names = append(f.names, name)
	}
	return x.placed(i)
}

// placed reports whether a folder is the root, or an entry of one before it.
func (x *searchIndex) placed(i int) bool {
	f := &x.folders[i]
	if i == 0 {
		return f.parent == -1 && f.path == "."
	}
	if f.parent < 0 || int(f.parent) >= i {
		return false
	}
	name := f.path
	if f.parent > 0 {
		above := x.folders[f.parent].path
		if len(name) <= len(above)+1 || !strings.HasPrefix(name, above) || name[len(above)] != '/' {
			return false
		}
		name = name[len(above)+1:]
	}
	return isEntryName(name)
}

func isEntryName(name string) bool {
	return name != "" && name != "." && name != ".." && strings.IndexByte(name, '/') < 0
}

// at is the text at a place, up to its NUL.
func (d *searchDecoder) at(place uint32) (string, bool) {
	if int64(place) >= int64(len(d.text)) {
		return "", false
	}
	rest := d.text[place:]
	n := strings.IndexByte(rest, 0)
	if n < 0 {
		return "", false
	}
	return rest[:n], true
}

// terminated returns a text with a NUL behind it in memory.
func terminated(parts ...string) string {
	s := strings.Join(append(parts, "\x00"), "")
	return s[:len(s)-1]
}

// entryPath is the path of an entry of a folder of the tree.
func entryPath(folder, name string) string {
	if folder == "." {
		return name
	}
	return folder + "/" + name
}
