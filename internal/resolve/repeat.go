package resolve

import (
	"io/fs"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
)

// A placement is where a command's program and its folder were found in a layout,
// and by which looks at the file tree. A command that asks for the same has the same
// place as long as the looks give the same.
type placement struct {
	name, dir, search string // what was asked for, and the PATH
	command           plan.Command
	// looks are to be made again each time. watched are of names that the layout was
	// made from: whoever watches those knows them to be the same.
	looks, watched []look
}

// A look is one at a path.
type look struct {
	path string
	looked
}

// same reports whether a look gives what it gave.
func (k *look) same(tree hostfs.FS) bool {
	info, err := tree.Lstat(k.path)
	return err == k.err && info == k.info
}

// keepPlace remembers where a command was placed, unless a look told nothing.
func (l *Layout) keepPlace(b *builder) {
	p := &placement{name: b.req.Name, dir: b.req.Dir, search: searchPath(b.plan.Env), command: *b.plan.Command}
	for at, found := range b.fs.seen {
		if found.err != nil && found.err != fs.ErrNotExist {
			return
		}
		if l.isWatched(at, found) {
			p.watched = append(p.watched, look{at, *found})
		} else {
			p.looks = append(p.looks, look{at, *found})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = p
}

// isWatched reports whether what was found at a path is found again while the names
// that the layout was made from lead to the same objects. The permissions of a file
// are no matter of its name.
func (l *Layout) isWatched(at string, found *looked) bool {
	kind, looked := l.looked[at]
	return looked && kind == found.info.Kind && kind != hostfs.File
}

// placeAgain places a command like the one before it, and reports whether it is one
// like that.
func (l *Layout) placeAgain(b *builder) bool {
	l.mu.Lock()
	p := l.last
	l.mu.Unlock()
	if p == nil || b.req.Name == "" || p.name != b.req.Name || p.dir != b.req.Dir || p.search != searchPath(b.plan.Env) {
		return false
	}
	for i := range p.looks {
		if !p.looks[i].same(b.snap.FS) {
			return false
		}
	}
	for i := range p.watched {
		if !b.req.Unchanged && !p.watched[i].same(b.snap.FS) {
			return false
		}
	}
	c := p.command
	c.Args, c.ExtraFiles, c.Terminal = b.arguments(), b.req.ExtraFiles, b.req.Terminal
	b.plan.Command = &c
	return true
}
