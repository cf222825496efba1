package review

import (
	"cmp"
	"crypto/sha256"
	"io"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxMoved bounds a file that is looked for among those that were deleted.
const maxMoved = 64 << 20

// findMoves joins a deleted file and an added one with the same content: overlayfs renames no
// folder, so programs copy its files and delete the old ones.
func (l *lister) findMoves() {
	bySize := map[int64][]*Change{}
	for _, c := range l.changes {
		if c.Kind == Deleted && c.Type == File && c.OldSize > 0 && c.OldSize <= maxMoved {
			bySize[c.OldSize] = append(bySize[c.OldSize], c)
		}
	}
	type key struct {
		size int64
		sum  [sha256.Size]byte
	}
	sums := map[key][]*Change{}
	hashed := map[int64]bool{}
	gone := map[*Change]bool{}
	for _, c := range l.changes {
		if c.Kind != Added || c.Type != File || bySize[c.Size] == nil {
			continue
		}
		if !hashed[c.Size] {
			hashed[c.Size] = true
			for _, d := range bySize[c.Size] {
				if sum, err := hashOf(l.lower, d.Path, false); err == nil {
					k := key{c.Size, sum}
					sums[k] = append(sums[k], d)
				}
			}
		}
		sum, err := hashOf(l.upper, c.at.upperPath, true)
		k := key{c.Size, sum}
		if err != nil || len(sums[k]) == 0 {
			continue
		}
		// Among equal files, one with the same name is the better match.
		at := max(0, slices.IndexFunc(sums[k], func(d *Change) bool { return path.Base(d.Path) == path.Base(c.Path) }))
		d := sums[k][at]
		sums[k] = slices.Delete(sums[k], at, at+1)
		if d.Unit != c.Unit {
			continue // a git directory is applied as a whole, and nothing else with it
		}
		gone[d] = true
		c.Kind, c.From, c.old = Renamed, d.Path, d
		c.OldSize, c.OldMode = d.OldSize, d.OldMode
		// Overlayfs has copied it, so it was not deleted on the host.
		if c.Conflict == deletedOnHost {
			c.Conflict = ""
		}
		c.Conflict = cmp.Or(c.Conflict, d.Conflict)
		c.Protected = cmp.Or(c.Protected, d.Protected)
	}
	l.changes = slices.DeleteFunc(l.changes, func(c *Change) bool { return gone[c] })
}

func hashOf(t tree, rel string, own bool) (sum [sha256.Size]byte, err error) {
	d, name, err := t.parent(rel)
	if err != nil {
		return sum, err
	}
	defer unix.Close(d)
	f, err := openFile(d, name, own)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxMoved+1)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}
