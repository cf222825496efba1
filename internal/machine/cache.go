package machine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	return &ProbeCache{file: filepath.Join(folder, "probes")}
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
		return cacheEntry{version: b.Version, setuid: b.Setuid, features: b.Features, mapRoot: b.MapRoot}, b.Probe
	})
	b.Probe = probe
	if probe.Outcome == host.Yes { // the path is the snapshot's, never one from the file: it will be executed
		b.Version, b.Setuid, b.Features, b.MapRoot = e.version, e.setuid, slices.Clone(e.features), e.mapRoot
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
	if e, ok := c.find(key.text()); ok {
		return e, host.Probe{Outcome: host.Yes}
	}
	e, p := probe()
	if p.Outcome == host.Yes {
		e.key, e.question = key.text(), key.question().text()
		c.remember(e)
	}
	return e, p
}

// Forget drops every remembered answer. A launch that fails although the answer was yes
// asks for that: what confines this process may have changed.
func (c *ProbeCache) Forget(ctx context.Context) {
	if c.lock(ctx) != nil {
		return
	}
	defer c.unlock()
	c.memo = nil
	if len(c.load()) > 0 {
		c.store(nil)
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
func (c *ProbeCache) find(key string) (cacheEntry, bool) {
	is := func(e cacheEntry) bool { return e.key == key }
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

// remember adds an entry to both. The file keeps its entries for other questions.
func (c *ProbeCache) remember(e cacheEntry) {
	c.memo = append(c.memo, e)
	kept := []cacheEntry{e}
	for _, old := range c.load() {
		if old.question != e.question && len(kept) < maxEntries {
			kept = append(kept, old)
		}
	}
	c.store(kept)
}

// A cacheEntry is one Yes.
type cacheEntry struct {
	key      string // the text of its probeKey
	question string // that of the question: an entry is replaced by the next one for it
	// The rest is about bwrap.
	version         string
	setuid, mapRoot bool
	features        []string
}

// A probeKey is everything that an outcome depends on, as far as it can be seen
// cheaply.
type probeKey struct {
	Boot    string
	Kernel  string
	UID     int
	UserNS  string
	MountNS string

	MaxUser           int64
	UnprivilegedClone int64
	AppArmorRestrict  int64
	// Seccomp is the caller's mode of seccomp, Filters how many filters it has, and Label that of
	// AppArmor or SELinux: they may refuse one process what another of the same user may do.
	// The kernel tells nobody but root what is in a filter.
	Seccomp int
	Filters int
	Label   string

	// Program is the name of a probe, or the path of the program that was probed. Of a
	// program, the rest tells one version from another.
	Program string
	Device  uint64
	Inode   uint64
	Size    int64
	MTime   int64 // nanoseconds
}

// text is the key on one line.
func (k probeKey) text() string { return fmt.Sprintf("%#v", k) }

// question returns the key with nothing in it but what was asked and by whom: the rest
// may change, and what was answered before is then of no use to anybody.
func (k probeKey) question() probeKey {
	return probeKey{Program: k.Program, UID: k.UID, UserNS: k.UserNS, MountNS: k.MountNS, Seccomp: k.Seccomp, Filters: k.Filters, Label: k.Label}
}

// cacheHead is the first line of the file. Its number changes with the meaning of the file
// and with what a probe tries.
const cacheHead = "cloche probes 3\n"

// load returns the entries of the file; one that is missing, damaged or not to be trusted
// has none. Each line is an entry, with tabs between its fields. With JSON, a start of cloche
// run takes 0.9 ms longer, a tenth of its goal.
func (c *ProbeCache) load() []cacheEntry {
	if c.file == "" {
		return nil
	}
	data, err := ownfile.ReadCache(c.file, maxCache)
	lines, ok := strings.CutPrefix(string(data), cacheHead)
	if err != nil || !ok {
		return nil
	}
	var all []cacheEntry
	for line := range strings.Lines(lines) {
		line, whole := strings.CutSuffix(line, "\n")
		f := strings.Split(line, "\t")
		if !whole || len(f) != 6 {
			return nil
		}
		e := cacheEntry{key: f[0], question: f[1], version: f[2], setuid: f[3] == "true", mapRoot: f[4] == "true"}
		if f[5] != "" {
			e.features = strings.Split(f[5], ",")
		}
		all = append(all, e)
	}
	return all
}

// store replaces the file. A failure is no error: the next process probes again.
func (c *ProbeCache) store(entries []cacheEntry) {
	if c.file == "" {
		return
	}
	var b strings.Builder
	b.WriteString(cacheHead)
	for _, e := range entries {
		fields := []string{e.key, e.question, e.version, strconv.FormatBool(e.setuid), strconv.FormatBool(e.mapRoot), strings.Join(e.features, ",")}
		if slices.ContainsFunc(fields, func(f string) bool { return strings.ContainsAny(f, "\t\n") }) {
			continue // no version of bwrap has such a name
		}
		b.WriteString(strings.Join(fields, "\t") + "\n")
	}
	_ = ownfile.WriteCache(c.file, []byte(b.String()))
}
