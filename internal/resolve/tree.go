package resolve

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/cloche-dev/cloche/host"
)

// maxLinks is how many symbolic links one path may go through, as in Linux.
const maxLinks = 40

// errLoop is the error for a path that goes through too many links.
var errLoop = errors.New("too many symbolic links")

// A realPath is a path after its symbolic links were followed.
type realPath struct {
	path string    // clean, absolute, free of links as far as it exists
	info host.Info // of what is there; Kind Missing if nothing is
	// links are the symbolic links on the way, each at its own real path.
	links []link
	// denied is set where a folder on the way may not be searched: nothing
	// below it can be seen by the caller, or by anything it starts.
	denied bool
}

type link struct{ path, target string }

func (r realPath) missing() bool { return r.info.Kind == host.Missing }

// follow resolves every symbolic link of p, a clean absolute path, the way the
// kernel does: component by component, ".." after links. The part that does
// not exist is appended as it is.
func follow(tree host.FS, p string) (realPath, error) {
	r := realPath{path: "/", info: host.Info{Kind: host.Dir}}
	rest := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			r.path, r.info = path.Dir(r.path), host.Info{Kind: host.Dir}
			continue
		}
		next := path.Join(r.path, name)
		info, err := tree.Lstat(next)
		if err != nil {
			return unresolved(r, next, rest, err)
		}
		if info.Kind != host.Symlink {
			r.path, r.info = next, info
			continue
		}
		if len(r.links) == maxLinks {
			return r, fmt.Errorf("%s: %w", p, errLoop)
		}
		r.links = append(r.links, link{next, info.Target})
		if path.IsAbs(info.Target) {
			r.path, r.info = "/", host.Info{Kind: host.Dir}
		}
		rest = append(strings.Split(info.Target, "/"), rest...)
	}
	return r, nil
}

// unresolved ends a walk at a component that cannot be looked at.
func unresolved(r realPath, at string, rest []string, err error) (realPath, error) {
	r.path = path.Join(append([]string{at}, rest...)...)
	r.info = host.Info{Kind: host.Missing}
	switch {
	case errors.Is(err, fs.ErrPermission):
		r.denied = true
		return r, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotDir):
		return r, nil
	default:
		return r, err
	}
}
