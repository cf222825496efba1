package resolve

import "github.com/cloche-dev/cloche/host"

// A cachedFS looks each path up once: rules share most of their parents, and
// one plan has to see one state of the tree anyway.
type cachedFS struct {
	host.FS
	seen map[string]looked
}

type looked struct {
	info host.Info
	err  error
}

func newCachedFS(fs host.FS) *cachedFS { return &cachedFS{FS: fs, seen: map[string]looked{}} }

// Lstat implements host.FS.
func (c *cachedFS) Lstat(p string) (host.Info, error) {
	if l, ok := c.seen[p]; ok {
		return l.info, l.err
	}
	info, err := c.FS.Lstat(p)
	c.seen[p] = looked{info, err}
	return info, err
}
