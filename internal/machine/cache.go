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

// maxCache bounds the size of the cache file that is read.
const maxCache = 64 << 10

// A ProbeCache remembers probes that said yes: in memory, and in a file for later
// processes, so that a run does not have to repeat a probe.
//
// Only Yes is remembered. The cause of a No may be fixed at any time, and an Unknown
// says nothing. A stale Yes, or one that somebody wrote into the file, is harmless: the
// launch that relies on it fails, the answer is forgotten, and nothing runs unconfined.
//
// The zero value remembers in memory only. A ProbeCache is safe for concurrent use; a
// probe that several goroutines ask for at once is made once.
type ProbeCache struct {
	file string
	once sync.Once
	turn chan struct{} // a lock whose wait can be canceled
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

// Bwrap returns the facts about the snapshot's bwrap. If they are not remembered, it
// probes, which executes bwrap. Before that it calls refuse, unless that is nil: if
// refuse returns a probe, that is the outcome and bwrap is not executed.
func (c *ProbeCache) Bwrap(ctx context.Context, s *host.Snapshot, refuse func(*host.Snapshot) *host.Probe) host.Bwrap {
	if s.Bwrap.Path == "" {
		return ProbeBwrap(ctx, s) // returns at once: there is nothing to execute
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
	if probe.Outcome == host.Yes { // the path always comes from the snapshot, not from the file, because it will be executed
		b.Version, b.Setuid, b.Features, b.MapRoot = e.version, e.setuid, slices.Clone(e.features), e.mapRoot
	}
	return b
}

// Ask returns the outcome of a named probe that needs no program. If it is not
// remembered, it calls ask.
func (c *ProbeCache) Ask(ctx context.Context, s *host.Snapshot, name string, ask func(context.Context) host.Probe) host.Probe {
	key, ok := probeKeyFor(s, "")
	key.Program = name
	_, p := c.remembered(ctx, key, ok, func() (cacheEntry, host.Probe) { return cacheEntry{}, ask(ctx) })
	return p
}

// remembered returns the remembered Yes for the key. Otherwise it probes, and remembers
// a Yes. If ok is false, there is no key, and it only probes.
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

// Forget drops every remembered answer. It is called when a launch fails although the
// answer was yes: the restrictions on this process may have changed.
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
	case c.turn <- struct{}{}: // the lock is free: a remembered answer is returned even if ctx has ended
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

// find looks for an entry in memory first and then in the file.
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

// maxEntries bounds the file. More than a few entries exist only for users who switch
// between binaries or namespaces.
const maxEntries = 16

// remember adds an entry to memory and to the file. In the file it replaces the entry
// for the same question.
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
	question string // the text of the key's question: a new entry replaces the one for the same question
	// The other fields are about bwrap.
	version         string
	setuid, mapRoot bool
	features        []string
}

// A probeKey has everything that an outcome depends on and that can be read quickly.
type probeKey struct {
	Boot    string
	Kernel  string
	UID     int
	UserNS  string
	MountNS string

	MaxUser           int64
	UnprivilegedClone int64
	AppArmorRestrict  int64
	// Seccomp is the seccomp mode of this process, Filters the number of its filters, and Label
	// its AppArmor or SELinux label. They can differ between two processes of the same user, and
	// with them the outcome. Only root can read the content of a filter, so it is not part of the
	// key.
	Seccomp int
	Filters int
	Label   string

	// Program is the name of a probe, or the path of the program that was probed. For a
	// program, the other fields identify its version.
	Program string
	Device  uint64
	Inode   uint64
	Size    int64
	MTime   int64 // nanoseconds
}

// text returns the key as one line.
func (k probeKey) text() string { return fmt.Sprintf("%#v", k) }

// question returns the part of the key that says what was asked and by which process.
// If the rest has changed, an earlier answer is useless.
func (k probeKey) question() probeKey {
	return probeKey{Program: k.Program, UID: k.UID, UserNS: k.UserNS, MountNS: k.MountNS, Seccomp: k.Seccomp, Filters: k.Filters, Label: k.Label}
}

// cacheHead is the first line of the file. Its number changes when the format of the file
// changes, or what a probe tries.
const cacheHead = "cloche probes 3\n"

// load returns the entries of the file. A file that is missing, damaged or not trusted has
// none. Each line is an entry, with tabs between its fields: with JSON, a start of cloche run
// takes 0.9 ms longer, a tenth of its goal.
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

// store replaces the file. Errors are ignored: the next process probes again.
func (c *ProbeCache) store(entries []cacheEntry) {
	if c.file == "" {
		return
	}
	var b strings.Builder
	b.WriteString(cacheHead)
	for _, e := range entries {
		fields := []string{e.key, e.question, e.version, strconv.FormatBool(e.setuid), strconv.FormatBool(e.mapRoot), strings.Join(e.features, ",")}
		if slices.ContainsFunc(fields, func(f string) bool { return strings.ContainsAny(f, "\t\n") }) {
			continue // such a line could not be read back; no real version looks like this
		}
		b.WriteString(strings.Join(fields, "\t") + "\n")
	}
	_ = ownfile.WriteCache(c.file, []byte(b.String()))
}
