package host

import (
	"path"
	"slices"
	"strings"
)

// near returns the part of a whole index that every search looks at: the upper
// folders, up to a number, and those with files that were found, with the folders
// around them. An index that has no more, and one that is near, is returned as it
// is.
func (x *searchIndex) near(upTo int) *searchIndex {
	if len(x.folders) <= upTo || x.later > 0 {
		return x
	}
	marks := x.nearMarks(upTo)
	at := make([]int32, len(x.folders))
	out := &searchIndex{folders: make([]searchFolder, 0, upTo), looked: x.looked, unread: x.unread}
	for i := range x.folders {
		f := x.folders[i]
		out.unseen += f.left
		if !marks[i] {
			above := &out.folders[at[f.parent]] // or one around it
			at[i] = at[f.parent]
			if marks[f.parent] {
				above.leaveOut(path.Base(f.path))
			}
			out.later++
			continue
		}
		if i > 0 {
			f.parent = at[f.parent]
		}
		at[i] = int32(len(out.folders))
		out.folders = append(out.folders, f)
	}
	if found := x.found(""); found.Omitted > 0 {
		out.omitted = uint32(found.Omitted)
	}
	if out.later == 0 {
		return x
	}
	return out
}

// leaveOut notes a folder in this one that the index does not have.
func (f *searchFolder) leaveOut(name string) {
	f.left++
	f.leftSum += sumOf(name)
}

// sumOf is a hash of a name (FNV-1a). Nothing but a longer search hangs on it.
func sumOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// nearMarks marks the folders of the near index. A folder's parent is marked
// before it.
func (x *searchIndex) nearMarks(upTo int) []bool {
	marks := make([]bool, len(x.folders))
	for _, i := range x.order(upTo) {
		marks[i] = true
	}
	for _, i := range x.withNames() {
		for ; i >= 0 && !marks[i]; i = x.folders[i].parent {
			marks[i] = true
		}
	}
	return marks
}

// order returns the uppermost folders, up to a number.
func (x *searchIndex) order(upTo int) []int32 {
	all := make([]int32, len(x.folders))
	for i := range all {
		all[i] = int32(i)
	}
	depth := func(i int32) int {
		if i == 0 {
			return -1
		}
		return strings.Count(x.folders[i].path, "/")
	}
	slices.SortStableFunc(all, func(a, b int32) int { return depth(a) - depth(b) })
	return all[:min(upTo, len(all))]
}

// withNames returns the folders of the files that a search names.
func (x *searchIndex) withNames() []int32 {
	var out []int32
	for i := range x.folders {
		if len(x.folders[i].names) > 0 {
			out = append(out, int32(i))
		}
	}
	slices.SortFunc(out, func(a, b int32) int { return strings.Compare(x.folders[a].path, x.folders[b].path) })
	return out[:min(len(out), maxFoundFiles)]
}
