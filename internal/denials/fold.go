package denials

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/learn"
	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Group is one refusal as it is printed, or several that have one reason: files
// of one folder, uses of one host.
type Group struct {
	// Denial is the first of them. Its Count is that of all.
	plan.Denial
	// Folder is where the files are, if there are several, and Files how many.
	Folder string
	Files  int
	// Noise is why nobody needs to be told of a command that went well, empty if
	// somebody does.
	Noise string
	// Preset is the preset of a toolchain or an agent that allows all of it, or empty.
	Preset string
	// Together are the edits that allow all of them, or nothing where none do.
	Together []policy.Edit

	home string
}

// Fold puts refusals with one reason together, most frequent first. Of a home no
// two files are folded: that would be about everything the user has. The fixer finds what allows
// all of a group.
func Fold(list []plan.Denial, home string, f judge.Fixer) []Group {
	var groups []Group
	index := map[string]int{}
	presets := newPresetFinder(home, f.Plan)
	for i := range list {
		d := &list[i]
		noise, preset := noiseOf(d), presets.find(d)
		k := groupKey(&d.Decision, home) + "\x00" + noise + "\x00" + preset
		at, ok := index[k]
		if !ok {
			index[k] = len(groups)
			groups = append(groups, Group{Denial: *d, Files: 1, Noise: noise, Preset: preset, home: home})
			continue
		}
		groups[at].add(d)
	}
	for i := range groups {
		groups[i].fix(f, presets)
	}
	slices.SortStableFunc(groups, func(x, y Group) int { return y.Count - x.Count })
	return groups
}

// groupKey is the same for refusals that are printed together.
func groupKey(d *plan.Decision, home string) string {
	if d.Host != "" {
		return "host\x00" + d.Host + "\x00" + d.Rule + "\x00" + d.Subject + "\x00" + strconv.Itoa(portOf(d)) + "\x00" + d.Path
	}
	if root, ok := cacheOf(d, home); ok {
		return "cache\x00" + strconv.FormatBool(d.Outside) + d.Rule + "\x00" + d.Subject + "\x00" + root
	}
	return string(d.Op) + "\x00" + strconv.FormatBool(d.Outside) + d.Rule + "\x00" + d.Subject + "\x00" + folderOf(d, home)
}

// cacheOf is the cache of a well-known tool that a change was refused in. A tool
// needs all of it.
func cacheOf(d *plan.Decision, home string) (root string, ok bool) {
	if d.Host != "" || d.Op == plan.OpRead || d.Op == plan.OpExec || d.Access == policy.Hidden || d.Protects() {
		return "", false
	}
	root, ok = learn.Cache(home, d.Path)
	return root, ok && root != d.Path
}

// portOf is 0 for what may belong to any port: looking up a name, and the
// connection that follows, are one thing.
func portOf(d *plan.Decision) int {
	if d.Op == plan.OpResolve || d.Op == plan.OpConnect && d.Protocol != "udp" && d.Protocol != "icmp" {
		return 0
	}
	return d.Port
}

// folderOf is the folder by which a file is printed together with others, or else
// the file.
func folderOf(d *plan.Decision, home string) string {
	folder := path.Dir(d.Path)
	if d.Access == policy.Hidden || strings.HasPrefix(d.Rule, "paths.protect") {
		folder = d.At // one rule, one option that lifts it
	}
	if folder == "" || folder == home || strings.Count(folder, "/") < 2 {
		return d.Path
	}
	return folder
}

// add counts one more. The one that is printed is the one that an option is about
// more exactly: a connection rather than the look-up before it.
func (g *Group) add(d *plan.Denial) {
	count := g.Count + d.Count
	switch {
	case d.Host != "" && g.Op == plan.OpResolve && d.Op != plan.OpResolve:
		g.Denial = *d
	case d.Host == "" && d.Path != g.Path:
		g.Files++
		g.Folder = folderOf(&d.Decision, "")
		if root, ok := cacheOf(&d.Decision, g.home); ok {
			g.Folder = root
		}
	}
	g.Count = count
}

// fix finds the edits that allow all of them.
func (g *Group) fix(f judge.Fixer, presets *presetFinder) {
	root, cache := cacheOf(&g.Decision, g.home)
	switch {
	case g.Preset != "":
		g.Together = []policy.Edit{{Field: "presets", Value: presets.option(g.Preset)}}
		return
	case g.Files < 2 && !cache:
		g.Together = g.Fix
		return
	}
	d := g.Decision
	if d.Path = g.Folder; cache {
		d.Path = root
	}
	if d.Op != plan.OpRead && d.Op != plan.OpExec {
		d.Op = plan.OpWrite
	}
	f.Fix(&d)
	g.Together = d.Fix
}

// String is the line for people.
func (g *Group) String() string {
	object := show.Visible(g.Object())
	if g.Files > 1 {
		object = strconv.Itoa(g.Files) + " files in " + show.Visible(g.Folder)
	}
	return g.Describe(object) + allowedBy(g.Together) + g.remark()
}

// remark is that of the denials, as far as it is about all of them.
func (g *Group) remark() string {
	if g.Preset != "" {
		return ", or write a policy for this project with cloche init"
	}
	if _, cache := cacheOf(&g.Decision, g.home); (cache || g.Files > 1) && !g.Outside && len(g.Fix) > 0 {
		return ""
	}
	return remark(&g.Decision)
}
