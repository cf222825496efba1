package resolve

import (
	"io/fs"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
)

// A placement records where a command's program and working folder were found in a layout, and
// the look-ups in the file tree that led to them. The same request has the same placement as
// long as the look-ups give the same results.
type placement struct {
	name, dir, search string // the request, and the PATH
	command           plan.Command
	// looks have to be repeated each time. watched are look-ups of names that the layout was
	// made from: if these names are watched, they need not be repeated.
	looks, watched []look
}

// A look is the result of one look-up.
type look struct {
	path string
	looked
}

// same reports whether the look-up still gives the same result.
func (k *look) same(tree hostfs.FS) bool {
	info, err := tree.Lstat(k.path)
	return err == k.err && info == k.info
}

// keepPlace remembers where a command was placed, unless a look-up failed.
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

// isWatched reports whether a look-up gives the same result as long as the names that the
// layout was made from are unchanged. For a regular file it does not, because its permissions
// can change.
func (l *Layout) isWatched(at string, found *looked) bool {
	kind, looked := l.looked[at]
	return looked && kind == found.info.Kind && kind != hostfs.File
}

// placeAgain places a command like the previous one, if it has the same name, folder and PATH.
// It reports whether it did.
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
