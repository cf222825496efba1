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

// A realPath is a path with its symbolic links resolved.
type realPath struct {
	path string      // clean, absolute, without links as far as it exists
	info hostfs.Info // of the file; Kind is Missing if there is none
	// links are the symbolic links on the way, each at its own real path.
	links []link
	// denied: a folder on the way may not be searched. Nothing below it is visible to the
	// caller or to any process it starts.
	denied bool
}

type link struct{ path, target string }

func (r *realPath) missing() bool { return r.info.Kind == hostfs.Missing }

// A tree is the file tree as one plan sees it. Each path is looked up once, and each folder
// that rules share is walked once: hundreds of rules are about a few folders, and one plan
// needs one consistent state of them. If a rule's folder does not exist, nothing below it is
// looked up.
type tree struct {
	hostfs.FS
	seen map[string]*looked
	// lacking are paths that do not exist according to listed folders. They are recorded if
	// remember is set.
	lacking  []string
	remember bool
	// folders are the results of walks to existing folders, by the folder as written. gone is
	// the most recent folder that does not exist.
	folders map[string]*walked
	gone    walked
	// homes are the folders that most rules are about. A folder below them is listed after
	// some names were not found in it, because most secrets exist on no machine.
	homes []string
}

// listAfter is the number of missing names after which a folder is listed: listing then takes
// less time than the look-ups that probably follow.
const listAfter = 4

// looked is the result of a look-up.
type looked struct {
	info hostfs.Info
	err  error
}

// walked is the result of a walk to a folder.
type walked struct {
	realPath
	err error
	// missed counts the names that were not found. names are all names in the folder, in lower
	// case, if it was listed.
	missed int
	names  map[string]bool
}

// nothing is the result for most paths of most rules.
var nothing = &looked{err: fs.ErrNotExist}

// newTree returns a tree. Folders below homes may be listed.
func newTree(under hostfs.FS, homes ...string) *tree {
	return &tree{FS: under, homes: homes, seen: make(map[string]*looked, 160), folders: make(map[string]*walked, 64)}
}

// newSmallTree is newTree for a few paths: allocating room for a whole plan would take as long
// as looking them up.
func newSmallTree(under hostfs.FS) *tree {
	return &tree{FS: under, seen: map[string]*looked{}, folders: map[string]*walked{}}
}

// aside returns a tree that uses the results so far and adds nothing to them. It is for paths
// that come and go, on which no plan depends.
func (t *tree) aside() *tree { return newSmallTree(seenFirst{t.FS, t.seen}) }

// seenFirst is a file tree with some results of earlier look-ups.
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

// look returns what is at a path. in, unless nil, is the folder that contains it under name.
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

// follow resolves every symbolic link of p, an absolute path, as the kernel does: component by
// component, ".." after links. A part that does not exist is appended as it is.
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

// folder is walk for a folder that contains other paths; "" is the root. The result is valid
// until the next call. Only existing folders are kept: most rules are about a folder that does
// not exist, which needs no look-up to find out again.
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

// lacks reports whether a folder was listed and does not contain a name.
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

// lackedBelow returns the path of a file below a folder, if a folder on the way was listed and
// does not have the next name. It returns "" if that is not known, or if there are links on
// the way.
func (t *tree) lackedBelow(dir, rest string) string {
	p := dir + "/" + rest
	for at := len(dir); ; {
		w := t.folders[p[:at]]
		if w == nil || w.names == nil || w.path != p[:at] {
			return ""
		}
		name, _, more := strings.Cut(p[at+1:], "/")
		at += 1 + len(name)
		switch {
		case !w.names[strings.ToLower(name)]:
			if t.remember {
				t.lacking = append(t.lacking, p[:at])
			}
			return p
		case !more:
			return ""
		}
	}
}

// list returns the names in a directory of a home, or nil if they cannot show what is missing.
// Other directories are not listed: few rules are about them, and they may be large.
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

// step goes from r, a folder whose walk is in if that is known, to an entry of it. written is
// the path as written; if it is the new path, no new string is made.
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

// follows goes to the target of a link in r.
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

// child returns the path of an entry: written, if that is the same text.
func child(dir, name, written string) string {
	dir = strings.TrimSuffix(dir, "/") // only the root ends in a slash
	if n := len(dir); len(written) == n+1+len(name) && written[n] == '/' && written[:n] == dir {
		return written
	}
	return dir + "/" + name
}

// lose ends a walk at an entry that cannot be looked up.
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
