package landlock

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"sort"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A grant is one rule of the ruleset.
type grant struct {
	path   string
	kind   host.Kind
	rights uint64
	// optional: the path may be gone when the command starts. This is set for everything found
	// by listing a folder.
	optional bool
	origin   policy.Origin
}

// A tree finds the grants that come closest to a plan.
type tree struct {
	fs     hostfs.FS
	lines  []plan.Path
	grants []grant
	// own are the paths that have a line.
	own map[string]bool
	// holds are the folders that contain something hidden, at any depth. The value says
	// whether a hidden folder is among it.
	holds map[string]bool
	// apart are the writable folders that had to be split into their entries.
	apart []plan.Path
}

// devices are harmless devices that programs expect. The terminals in /dev/pts are not among
// them, because they belong to other programs.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// grantsFor returns the grants for a plan, sorted by path.
func grantsFor(p *plan.Plan, files hostfs.FS) *tree {
	t := &tree{fs: files, own: map[string]bool{}, holds: map[string]bool{}}
	for _, e := range p.Paths {
		if line, counts := asLandlock(e); counts && !leftOpen(p, e) {
			t.addLine(line)
		}
	}
	for _, e := range t.lines {
		switch {
		case e.Content == plan.Devices:
			t.grantDevices(e.Origin)
		case e.Access != policy.Hidden:
			t.cover(e.Path, e.Kind, e, false)
		}
	}
	sort.SliceStable(t.grants, func(i, j int) bool { return t.grants[i].path < t.grants[j].path })
	return t
}

func (t *tree) addLine(e plan.Path) {
	t.lines = append(t.lines, e)
	t.own[e.Path] = true
	if e.Access != policy.Hidden {
		return
	}
	for d := e.Path; d != "/"; {
		d = path.Dir(d)
		t.holds[d] = t.holds[d] || e.Kind == hostfs.Dir
	}
}

// asLandlock returns a line as it can be enforced without mounts. counts is false for a line
// that has no meaning then.
func asLandlock(e plan.Path) (line plan.Path, counts bool) {
	switch e.Content {
	case plan.Host:
		if e.Source != e.Path { // bound from another path
			e.Access = policy.Hidden
		}
		return e, e.Kind != hostfs.Missing
	case plan.Empty:
		e.Access = policy.Hidden
		// The filter denies sockets everywhere.
		return e, e.Kind != hostfs.Socket
	case plan.Proc:
		// A command has to write nothing in /proc, and there is much that root must not write.
		e.Access = policy.Read
		return e, true
	case plan.Text:
		return e, true // the host's file
	case plan.Devices:
		e.Access = policy.Hidden // except for some: see grantDevices
		return e, true
	case plan.Link: // needs no right to be followed
	}
	return e, false
}

// leftOpen reports whether a file that a search found is not hidden. Hiding it would split its
// folder into its entries, and a workspace in which no file can be created next to a .env file
// is useless.
func leftOpen(p *plan.Plan, e plan.Path) bool {
	return e.Found && p.Access(path.Dir(e.Path)) == policy.Write
}

func (t *tree) grantDevices(o policy.Origin) {
	for _, p := range devices {
		t.grants = append(t.grants, grant{path: p, kind: hostfs.Device, rights: forDevice, optional: true, origin: o})
	}
}

// cover allows what a line says for a path in it: the path as a whole, or its entries one by
// one if something in it is hidden.
func (t *tree) cover(p string, kind host.Kind, line plan.Path, listed bool) {
	holdsFolder, holds := t.holds[p]
	if !holds {
		t.add(p, kind, rightsFor(line.Access, kind), line, listed)
		return
	}
	if line.Access == policy.Write {
		t.apart = append(t.apart, plan.Path{Path: p, Origin: line.Origin})
	}
	if !holdsFolder {
		t.add(p, kind, ll.ReadDir, line, listed)
	}
	for _, name := range t.entries(p) {
		t.coverEntry(path.Join(p, name), line)
	}
}

// usualEntries are the entries that are tried in folders that cannot be listed, for example
// inside another sandbox of this kind. Programs would not even start without them.
var usualEntries = map[string][]string{
	"/": {"bin", "boot", "etc", "gnu", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "nix", "opt", "root", "sbin", "srv", "sys", "usr", "var"},
	"/etc": {
		"alternatives", "bash.bashrc", "ca-certificates", "crypto-policies", "debian_version", "environment", "fonts", "gai.conf", "gitconfig",
		"group", "host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "locale.alias", "locale.conf",
		"localtime", "login.defs", "machine-id", "mime.types", "networks", "nsswitch.conf", "os-release", "passwd", "pki", "profile",
		"profile.d", "protocols", "resolv.conf", "services", "shells", "ssl", "static", "terminfo", "timezone",
	},
	"/var": {"cache", "lib", "log"},
}

// entries returns the names in a folder, as far as they are known.
func (t *tree) entries(p string) []string {
	names, err := t.fs.ReadDir(p)
	if errors.Is(err, fs.ErrPermission) {
		return usualEntries[p]
	}
	return names
}

// coverEntry covers an entry of a split folder, unless it has a line of its own.
func (t *tree) coverEntry(p string, line plan.Path) {
	if t.own[p] {
		return
	}
	info, err := t.fs.Lstat(p)
	if err != nil || info.Kind == hostfs.Symlink || info.Kind == hostfs.Socket {
		return
	}
	t.cover(p, info.Kind, line, true)
}

func (t *tree) add(p string, kind host.Kind, rights uint64, line plan.Path, listed bool) {
	t.grants = append(t.grants, grant{path: p, kind: kind, rights: rights, optional: listed, origin: line.Origin})
}

// writable reports whether a grant makes a path writable, whatever its own line says.
func (t *tree) writable(p string) bool {
	return slices.ContainsFunc(t.grants, func(g grant) bool {
		return g.rights&ll.WriteFile != 0 && pathx.Within(g.path, p)
	})
}
