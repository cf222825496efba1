// Package treewatch detects that a path leads to another file than before. A parked sandbox
// was made from a number of look-ups in the file tree. As long as each of them would find the
// same file again, the sandbox is up to date.
//
// Looking up each path again would cost a command more than the rest of its start. A name
// changes only together with its folder, and there are few folders. The kernel reports changes
// in folders of local file systems (inotify). In other file systems, and if the user has too many
// inotify instances, the modification time of the folder is checked, and its names only if that has
// changed.
//
// The limits: if the kernel reports changes, a file system that the host mounts over one of
// the names is not noticed. A change to a file that stays the same file, such as its
// permissions, is never noticed. Of a file system that keeps no time of birth, neither is a
// directory that has the inode number of the one it replaces.
package treewatch

import (
	"path"
	"slices"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/host"
)

// grain is how far apart two changes have to be for their times to differ: kernels before 6.13
// count in ticks of up to 10 ms.
const grain = 20 * time.Millisecond

// coarseGrain is the same for file systems that keep only whole seconds.
const coarseGrain = 2 * time.Second

// A Watch records which files names lead to. It is safe for concurrent use.
type Watch struct {
	mu      sync.Mutex
	folders []*folder
	kernel  *notifier
}

// A folder contains names that were looked up.
type folder struct {
	path  string
	names map[string]identity // by their last component
	// told: the kernel reports changes. Otherwise id and when are from the last check.
	told bool
	id   identity
	when time.Time // its modification time
	// settled: a later change will have another time.
	settled bool
}

// New starts to watch the names, until [Watch.Close]. It returns the first one whose kind is
// no longer what the look-up found. Missing stands for everything that could not be seen.
func New(looked map[string]host.Kind) (w *Watch, changed string) {
	w = &Watch{folders: foldersOf(looked), kernel: newNotifier()}
	for _, f := range w.folders {
		// The watch starts first: a later change is reported, or has a new time.
		f.told = w.kernel.add(f)
		f.stamp()
		for name := range f.names {
			p := path.Join(f.path, name)
			id := identify(p)
			if id.kind() != looked[p] {
				w.Close()
				return nil, p
			}
			f.names[name] = id
		}
	}
	return w, ""
}

func foldersOf(looked map[string]host.Kind) []*folder {
	byPath := map[string]*folder{}
	var list []*folder
	for p := range looked {
		if p == "/" {
			continue // it is always the same
		}
		dir, name := path.Split(p)
		dir = path.Clean(dir)
		f := byPath[dir]
		if f == nil {
			f = &folder{path: dir, names: map[string]identity{}}
			byPath[dir] = f
			list = append(list, f)
		}
		f.names[name] = identity{}
	}
	slices.SortFunc(list, func(a, b *folder) int { return len(a.path) - len(b.path) })
	return list
}

// Close ends the watch.
func (w *Watch) Close() { w.kernel.close() }

// Changed returns a name that leads to another file than at New, or an empty string.
func (w *Watch) Changed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kernel.collect()
	for _, f := range w.folders {
		if p := f.changed(); p != "" {
			return p
		}
	}
	return ""
}

func (f *folder) changed() string {
	if f.told && f.settled {
		return ""
	}
	if !f.told {
		id, when := examine(f.path)
		if f.settled && id == f.id && when.Equal(f.when) {
			return ""
		}
	}
	f.stamp()
	for name, was := range f.names {
		if p := path.Join(f.path, name); identify(p) != was {
			return p
		}
	}
	return ""
}

// stamp records the folder's state, before its names are checked.
func (f *folder) stamp() {
	if f.told {
		f.settled = true
		return
	}
	now := time.Now()
	f.id, f.when = examine(f.path)
	after := grain
	if f.when.Nanosecond() == 0 {
		after = coarseGrain
	}
	f.settled = now.Sub(f.when) > after
}
