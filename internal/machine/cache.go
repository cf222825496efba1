package machine

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cloche-dev/cloche/internal/ownfile"

	"github.com/cloche-dev/cloche/host"
)

// maxCache is the most that is read of the file of a cache.
const maxCache = 64 << 10

// A ProbeCache remembers probes that said yes: within the process, and in a
// file for later ones, so that a run does not pay for a probe.
//
// Only Yes is remembered. A No may be cured the next moment, and an Unknown says
// nothing. A Yes that has become stale, or that somebody wrote into the file, is
// harmless: the launch that relies on it fails, the answer is forgotten, and
// nothing runs unconfined.
//
// The zero value remembers within the process only. A ProbeCache may be used by
// many goroutines; a probe that several ask for at once is made once.
type ProbeCache struct {
	file string
	once sync.Once
	turn chan struct{} // a lock that can be given up on
	memo []cacheEntry
}

// NewProbeCache returns a cache that keeps its file in cloche's cache folder
// ([Dirs.Cache]). An empty folder means no file.
func NewProbeCache(folder string) *ProbeCache {
	if folder == "" {
		return &ProbeCache{}
	}
	return &ProbeCache{file: filepath.Join(folder, "probes.json")}
}

// Bwrap returns what is known of the snapshot's bwrap, probing it if need be. A
// probe executes it. Unless nil, refuse is asked before, and says with what
// outcome it must not be.
func (c *ProbeCache) Bwrap(ctx context.Context, s *host.Snapshot, refuse func(*host.Snapshot) *host.Probe) host.Bwrap {
	if s.Bwrap.Path == "" {
		return ProbeBwrap(ctx, s) // which asks nothing of the machine
	}
	b := s.Bwrap
	key, ok := probeKeyFor(s, s.Bwrap.Path)
	e, probe := c.remembered(ctx, key, ok, func() (cacheEntry, host.Probe) {
		if refuse != nil {
			if p := refuse(s); p != nil {
				return cacheEntry{}, *p
			}
		}
		b = ProbeBwrap(ctx, s)
		return cacheEntry{Version: b.Version, Setuid: b.Setuid, Features: b.Features, MapRoot: b.MapRoot}, b.Probe
	})
	b.Probe = probe
	if probe.Outcome == host.Yes { // the path is the snapshot's, never one from the file: it will be executed
		b.Version, b.Setuid, b.Features, b.MapRoot = e.Version, e.Setuid, slices.Clone(e.Features), e.MapRoot
	}
	return b
}

// Ask returns the outcome of a probe that needs no program, by its name, asking
// if need be. Like all others, only a Yes is remembered.
func (c *ProbeCache) Ask(ctx context.Context, s *host.Snapshot, name string, ask func(context.Context) host.Probe) host.Probe {
	key, ok := probeKeyFor(s, "")
	key.Program = name
	_, p := c.remembered(ctx, key, ok, func() (cacheEntry, host.Probe) { return cacheEntry{}, ask(ctx) })
	return p
}

// remembered returns the remembered Yes for the key, or else probes and remembers a
// Yes. Without a key, which is not ok, it only probes.
func (c *ProbeCache) remembered(ctx context.Context, key probeKey, ok bool, probe func() (cacheEntry, host.Probe)) (cacheEntry, host.Probe) {
	if !ok {
		return probe()
	}
	if err := c.lock(ctx); err != nil {
		return cacheEntry{}, inconclusive("another probe is under way", err.Error())
	}
	defer c.unlock()
	if e, ok := c.find(key); ok {
		return e, host.Probe{Outcome: host.Yes}
	}
	e, p := probe()
	if p.Outcome == host.Yes {
		e.Key = key
		c.remember(e)
	}
	return e, p
}

// Forget drops every remembered answer of the snapshot's caller about a program or
// a probe, by its name, and every one about bwrap. A launch that fails although
// the answer was yes asks for that: what confines this process may have changed.
func (c *ProbeCache) Forget(ctx context.Context, s *host.Snapshot, name string) {
	if c.lock(ctx) != nil {
		return
	}
	defer c.unlock()
	is := func(e cacheEntry) bool {
		return e.Key.UID == s.UID && (e.Key.Program == name || e.Key.Program == s.Bwrap.Path)
	}
	c.memo = slices.DeleteFunc(c.memo, is)
	stored := c.load()
	if kept := slices.DeleteFunc(slices.Clone(stored), is); len(kept) < len(stored) {
		c.store(kept)
	}
}

func (c *ProbeCache) lock(ctx context.Context) error {
	c.once.Do(func() { c.turn = make(chan struct{}, 1) })
	select {
	case c.turn <- struct{}{}: // free: what is remembered is given even where ctx has ended
		return nil
	default:
	}
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *ProbeCache) unlock() { <-c.turn }

// find looks in the process first and then in the file.
func (c *ProbeCache) find(key probeKey) (cacheEntry, bool) {
	is := func(e cacheEntry) bool { return e.Key == key }
	if i := slices.IndexFunc(c.memo, is); i >= 0 {
		return c.memo[i], true
	}
	stored := c.load()
	if i := slices.IndexFunc(stored, is); i >= 0 {
		c.memo = append(c.memo, stored[i])
		return stored[i], true
	}
	return cacheEntry{}, false
}

// maxEntries bounds the file; more than a few are only there for who switches
// between binaries or namespaces.
const maxEntries = 16

// remember adds an entry to both. The file keeps its other entries of this boot.
func (c *ProbeCache) remember(e cacheEntry) {
	c.memo = append(c.memo, e)
	kept := []cacheEntry{e}
	for _, old := range c.load() {
		if old.Key.Boot == e.Key.Boot && !old.Key.replacedBy(e.Key) && len(kept) < maxEntries {
			kept = append(kept, old)
		}
	}
	c.store(kept)
}

// A cacheEntry is one Yes.
type cacheEntry struct {
	Key      probeKey `json:"key"`
	Version  string   `json:"version,omitempty"`
	Setuid   bool     `json:"setuid,omitempty"`
	Features []string `json:"features,omitempty"`
	MapRoot  bool     `json:"map_root,omitempty"`
}

// A probeKey is everything that an outcome depends on, as far as it can be seen
// cheaply.
type probeKey struct {
	Boot    string `json:"boot"`
	Kernel  string `json:"kernel"`
	UID     int    `json:"uid"`
	UserNS  string `json:"user_ns"`
	MountNS string `json:"mount_ns"`

	MaxUser           int64 `json:"max_user"`
	UnprivilegedClone int64 `json:"unprivileged_clone"`
	AppArmorRestrict  int64 `json:"apparmor_restrict"`
	// Seccomp is the caller's mode of seccomp, Filters how many filters it has, and Label that of
	// AppArmor or SELinux: they may refuse one process what another of the same user may do.
	// The kernel tells nobody but root what is in a filter.
	Seccomp int    `json:"seccomp"`
	Filters int    `json:"filters"`
	Label   string `json:"label"`

	// Program is the name of a probe, or the path of the program that was probed. Of a
	// program, the rest tells one version from another.
	Program string `json:"program,omitempty"`
	Device  uint64 `json:"device,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
	Size    int64  `json:"size,omitempty"`
	MTime   int64  `json:"mtime,omitempty"` // nanoseconds
}

// replacedBy reports whether a newer key is for the same question, so that the
// older one can never be asked for again.
func (k probeKey) replacedBy(n probeKey) bool {
	return k.Program == n.Program && k.UID == n.UID && k.UserNS == n.UserNS && k.MountNS == n.MountNS &&
		k.Seccomp == n.Seccomp && k.Filters == n.Filters && k.Label == n.Label
}

// cacheVersion changes with the meaning of the file and with what a probe tries.
const cacheVersion = 2

type cacheFile struct {
	Version int          `json:"version"`
	Entries []cacheEntry `json:"entries"`
}

// load returns the entries of the file; one that is missing, damaged or not to be
// trusted has none.
func (c *ProbeCache) load() []cacheEntry {
	if c.file == "" {
		return nil
	}
	var f cacheFile
	data, err := ownfile.ReadCache(c.file, maxCache)
	if err != nil || json.Unmarshal(data, &f) != nil || f.Version != cacheVersion {
		return nil
	}
	return f.Entries
}

// store replaces the file. A failure is no error: the next process probes again.
func (c *ProbeCache) store(entries []cacheEntry) {
	if c.file == "" {
		return
	}
	if data, err := json.Marshal(cacheFile{Version: cacheVersion, Entries: entries}); err == nil {
		_ = ownfile.WriteCache(c.file, append(data, '\n'))
	}
}
