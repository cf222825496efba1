package review

import (
	"cmp"
	"crypto/sha256"
	"io"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxMoved bounds a file that is looked for among those that were deleted, and maxHashed what is read of all of them: a command can make
// any number of files that have the right size and take no space.
const (
	maxMoved  = 64 << 20
	maxHashed = 1 << 30
)

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
	type name struct {
		key
		base string
	}
	sums, named := map[key]*[]*Change{}, map[name]*[]*Change{}
	hashed := map[int64]bool{}
	gone := map[*Change]bool{}
	for _, c := range l.changes {
		if c.Kind != Added || c.Type != File || bySize[c.Size] == nil {
			continue
		}
		toRead := c.Size
		if !hashed[c.Size] {
			toRead *= int64(1 + len(bySize[c.Size]))
		}
		if l.hashed += toRead; l.hashed > maxHashed {
			break // the rest is shown as deleted and added
		}
		if !hashed[c.Size] {
			hashed[c.Size] = true
			for _, d := range bySize[c.Size] {
				if sum, err := hashOf(l.lower, d.Path, false); err == nil {
					k := key{c.Size, sum}
					n := name{k, path.Base(d.Path)}
					if sums[k] == nil {
						sums[k] = &[]*Change{}
					}
					if named[n] == nil {
						named[n] = &[]*Change{}
					}
					*sums[k], *named[n] = append(*sums[k], d), append(*named[n], d)
				}
			}
		}
		sum, err := hashOf(l.upper, c.at.upperPath, true)
		k := key{c.Size, sum}
		if err != nil || sums[k] == nil {
			continue
		}
		// Among equal files, one with the same name is the better match. A command can make a million of them.
		d := first(named[name{k, path.Base(c.Path)}], gone)
		if d == nil {
			d = first(sums[k], gone)
		}
		if d == nil {
			continue
		}
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

// first takes the first change out of a list that is not gone, or nil.
func first(list *[]*Change, gone map[*Change]bool) *Change {
	for list != nil && len(*list) > 0 {
		c := (*list)[0]
		*list = (*list)[1:]
		if !gone[c] {
			return c
		}
	}
	return nil
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
