// Package treewatch notices that names lead elsewhere than before. A parked
// sandbox was laid out from a number of look-ups in the file tree; as long as each
// of them would give the same object again, the layout is still right.
//
// Asking about each name would cost a command more than the rest of its start.
// The name of an object changes only with the folder that holds it, and there
// are few of those. The kernel tells about changes in folders of local file
// systems (inotify). Of others, and where it does not, the modification time is
// looked at, and the names in a folder only if that has changed.
//
// The limits: a file system that the host mounts over one of the names is not
// noticed where the kernel tells, and neither is a change in a file that keeps
// its identity, its permissions for instance.
package treewatch

import (
	"path"
	"slices"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/host"
)

// grain is how far apart two changes have to be for their times to differ:
// kernels before 6.13 count in ticks of up to 10 ms.
const grain = 20 * time.Millisecond

// coarseGrain is the same for file systems that keep whole seconds.
const coarseGrain = 2 * time.Second

// A Watch remembers what names lead to. It is safe for concurrent use.
type Watch struct {
	mu      sync.Mutex
	folders []*folder
	kernel  *notifier
}

// A folder holds names that were looked up.
type folder struct {
	path  string
	names map[string]identity // by their last component
	// told: the kernel tells about changes. Otherwise these are what the folder
	// was at the last look.
	told bool
	id   identity
	when time.Time // its modification time
	// settled: a later change will have another time.
	settled bool
}

// New starts to watch the names, which [Watch.Close] ends. It returns the first
// one whose kind is no longer what the look-up found; Missing stands for
// whatever could not be seen.
func New(looked map[string]host.Kind) (w *Watch, changed string) {
	w = &Watch{folders: foldersOf(looked), kernel: newNotifier()}
	for _, f := range w.folders {
		// The watch first: what changes after that is told, or has a new time.
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
			continue // it is always itself
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

// Changed returns a name that leads elsewhere than at New, or nothing.
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

// stamp takes note of the folder's state, before its names are looked at.
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
