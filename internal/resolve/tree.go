package resolve

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// maxLinks is how many symbolic links one path may go through, as in Linux.
const maxLinks = 40

// errLoop is the error for a path that goes through too many links.
var errLoop = errors.New("too many symbolic links")

// A realPath is a path after its symbolic links were followed.
type realPath struct {
	path string      // clean, absolute, free of links as far as it exists
	info hostfs.Info // of what is there; Kind Missing if nothing is
	// links are the symbolic links on the way, each at its own real path.
	links []link
	// denied is set where a folder on the way may not be searched: nothing
	// below it can be seen by the caller, or by anything it starts.
	denied bool
}

type link struct{ path, target string }

func (r *realPath) missing() bool { return r.info.Kind == hostfs.Missing }

// A tree is the file tree as one plan sees it. Each path is looked at once, and
// each folder that rules share is walked once: hundreds of rules are about a
// few folders, and one plan has to see one state of them anyway. Of a rule whose
// folder does not exist nothing is looked at.
type tree struct {
	hostfs.FS
	seen map[string]*looked
	// lacking are the paths that folders were found not to hold when they were
	// listed, if somebody wants to know all that was looked at.
	lacking  []string
	remember bool
	// folders are the outcomes of walks to folders that exist, by the folder as it
	// was written; gone is the last that does not.
	folders map[string]*walked
	gone    walked
	// homes are the folders that most rules are about. Those in them are listed
	// once some names were looked for in vain: most secrets are on no machine.
	homes []string
}

// listAfter is after how many names that a folder lacks it is listed: then that
// takes less than the look-ups that are likely to come.
const listAfter = 4

// looked is what was found at one path.
type looked struct {
	info hostfs.Info
	err  error
}

// walked is where a folder leads, or why that cannot be told.
type walked struct {
	realPath
	err error
	// missed counts the names that were looked for in vain; names are all that it
	// has, in lower case, if it was listed.
	missed int
	names  map[string]bool
}

// nothing is what most paths of most rules hold.
var nothing = &looked{err: fs.ErrNotExist}

// newTree returns a tree of which the folders of homes may be listed.
func newTree(under hostfs.FS, homes ...string) *tree {
	return &tree{FS: under, homes: homes, seen: make(map[string]*looked, 160), folders: make(map[string]*walked, 64)}
}

// newSmallTree is newTree for a few paths: to make room for those of a whole plan
// would take as long as looking them up.
func newSmallTree(under hostfs.FS) *tree {
	return &tree{FS: under, seen: map[string]*looked{}, folders: map[string]*walked{}}
}

// aside returns a tree that shares what was looked at and adds nothing to it: for
// paths that come and go, on which no plan depends.
func (t *tree) aside() *tree { return newSmallTree(seenFirst{t.FS, t.seen}) }

// seenFirst is a file tree of which some paths were looked at before.
type seenFirst struct {
	hostfs.FS
	seen map[string]*looked
}

// Lstat implements hostfs.FS.
func (t seenFirst) Lstat(p string) (hostfs.Info, error) {
	if found, ok := t.seen[p]; ok {
		return found.info, found.err
	}
	return t.FS.Lstat(p)
}

// Lstat implements hostfs.FS.
func (t *tree) Lstat(p string) (hostfs.Info, error) {
	found := t.look(p, nil, "")
	return found.info, found.err
}

// look returns what is at a path, which is a name in a folder if that is known.
func (t *tree) look(p string, in *walked, name string) *looked {
	if in != nil && t.lacks(in, name) {
		if t.remember {
			t.lacking = append(t.lacking, p)
		}
		return nothing
	}
	found, ok := t.seen[p]
	if ok {
		return found
	}
	found = nothing
	if info, err := t.FS.Lstat(p); err != fs.ErrNotExist {
		found = &looked{info, err}
	} else if in != nil {
		in.missed++
	}
	t.seen[p] = found
	return found
}

// follow resolves every symbolic link of p, an absolute path, the way the
// kernel does: component by component, ".." after links. The part that does
// not exist is appended as it is.
func (t *tree) follow(p string) (realPath, error) {
	r, err := t.walk(p)
	if err == errLoop {
		err = fmt.Errorf("%s: %w", p, errLoop)
	}
	return r, err
}

func (t *tree) walk(p string) (realPath, error) {
	cut := strings.LastIndexByte(p, '/')
	in := t.folder(p[:max(0, cut)])
	r := in.realPath
	err := in.err
	if err == nil {
		err = t.step(&r, in, p[cut+1:], p)
	}
	return r, err
}

// folder is walk for a folder that other paths lie in; the root is empty. What it
// returns may change with the next call: only folders that exist are kept, since
// most rules have one of their own that does not, which takes no look to know.
func (t *tree) folder(dir string) *walked {
	if w, ok := t.folders[dir]; ok {
		return w
	}
	r, err := realPath{path: "/", info: hostfs.Info{Kind: hostfs.Dir}}, error(nil)
	if dir != "" {
		r, err = t.walk(dir)
	}
	if r.missing() {
		t.gone = walked{realPath: r, err: err}
		return &t.gone
	}
	w := &walked{realPath: r, err: err}
	t.folders[dir] = w
	return w
}

// lacks reports that a folder was listed and does not hold a name.
func (t *tree) lacks(w *walked, name string) bool {
	if w.missed < listAfter {
		return false
	}
	if w.missed == listAfter {
		w.missed++ // so that it is tried once
		w.names = t.list(w.path)
	}
	return w.names != nil && !w.names[strings.ToLower(name)]
}

// list returns the names in a directory of a home, nil where they do not tell what is
// not there. Few rules are about other directories, and those may be large.
func (t *tree) list(dir string) map[string]bool {
	lister, ok := t.FS.(hostfs.Lister)
	if !ok || !inAny(t.homes, dir) {
		return nil
	}
	names, ok := lister.Names(dir)
	if !ok {
		return nil
	}
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[strings.ToLower(name)] = true
	}
	return all
}

// step goes from where r is, a folder that is in if that is known, to an entry of
// it. The path as written, if it ends in the entry, spares making it again.
func (t *tree) step(r *realPath, in *walked, name, written string) error {
	switch {
	case name == "" || name == ".":
		return nil
	case name == ".." && r.missing():
		r.path = path.Dir(r.path)
		return nil
	case name == "..":
		r.path, r.info = path.Dir(r.path), hostfs.Info{Kind: hostfs.Dir}
		return nil
	}
	next := child(r.path, name, written)
	if r.missing() {
		r.path = next
		return nil
	}
	found := t.look(next, in, name)
	switch {
	case found.err != nil:
		return r.lose(next, found.err)
	case found.info.Kind == hostfs.Symlink:
		return t.follows(r, link{next, found.info.Target})
	}
	r.path, r.info = next, found.info
	return nil
}

// follows goes where a link in r leads.
func (t *tree) follows(r *realPath, l link) error {
	if len(r.links) == maxLinks {
		return errLoop
	}
	r.links = append(slices.Clip(r.links), l) // walks share the links of a folder
	if path.IsAbs(l.target) {
		r.path, r.info = "/", hostfs.Info{Kind: hostfs.Dir}
	}
	for name := range strings.SplitSeq(l.target, "/") {
		if err := t.step(r, nil, name, ""); err != nil {
			return err
		}
	}
	return nil
}

// child is the path of an entry: the written one if it says the same.
func child(dir, name, written string) string {
	dir = strings.TrimSuffix(dir, "/") // the root's
	if n := len(dir); len(written) == n+1+len(name) && written[n] == '/' && written[:n] == dir {
		return written
	}
	return dir + "/" + name
}

// lose ends a walk at an entry that cannot be looked at.
func (r *realPath) lose(at string, err error) error {
	r.path, r.info = at, hostfs.Info{Kind: hostfs.Missing}
	switch {
	case err == fs.ErrNotExist, errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotDir):
		return nil
	case errors.Is(err, fs.ErrPermission):
		r.denied = true
		return nil
	}
	return err
}
