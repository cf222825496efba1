package resolve

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/search"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Searches returns the searches that a policy needs for the files that it hides by name
// (paths.hide_found). They search the folders that commands work on: the workspace, the
// document's folder, and a folder of [policy.Workspace].
func Searches(p *policy.Policy, workspace, document string) []hostfs.Search {
	names := foundNames(p)
	if len(names) == 0 {
		return nil
	}
	roots := []string{workspace}
	for i := range p.Paths {
		r := &p.Paths[i]
		switch {
		case r.Access != policy.Write || r.Origin.Layer != policy.LayerPreset:
		case r.Path == "urn:cloche:document" && document != "":
			roots = append(roots, document)
		case path.IsAbs(r.Path) && !pathx.IsGlob(r.Path) && !strings.Contains(r.Path, "$"):
			roots = append(roots, path.Clean(r.Path))
		}
	}
	slices.Sort(roots)
	var searches []hostfs.Search
	for _, root := range roots {
		in := func(s hostfs.Search) bool { return pathx.Within(s.Root, root) }
		if !slices.ContainsFunc(searches, in) {
			searches = append(searches, hostfs.Search{Root: root, Names: names})
		}
	}
	return searches
}

// foundNames returns the names of files that the policy hides by name.
func foundNames(p *policy.Policy) []string {
	var names []string
	for i := range p.Paths {
		if r := &p.Paths[i]; r.Found {
			names = append(names, strings.TrimPrefix(r.Path, "**/"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// foundFiles hides the files that the searches found. It does not hide files that git tracks
// unchanged: their content is in the repository, which the command can read, and git would
// report a hidden file as changed.
func (b *builder) foundFiles() {
	rules := b.foundRules()
	if len(rules) == 0 {
		return
	}
	for _, wanted := range Searches(&b.policy, b.req.Workspace, b.req.Document) {
		found := b.searched(wanted)
		if found == nil {
			b.notice(plan.NoticeWarning, wanted.Root+" could not be searched for "+few(rules)+": they are not hidden; the preset dotenv hides such files without a search", rules[0].Origin)
			continue
		}
		for _, f := range found.Files {
			b.foundFile(rules, wanted.Root, f)
		}
		b.noteUnseen(found, rules)
	}
}

// searched returns the result of a search, or nil if it was not made.
func (b *builder) searched(wanted hostfs.Search) *hostfs.Found {
	all := b.snap.FoundFiles()
	if all == nil && !b.snap.Live() {
		real, err := b.follow(wanted.Root)
		if err != nil {
			return nil
		}
		return search.In(b.snap.FS, hostfs.Search{Root: real.path, Names: wanted.Names})
	}
	for _, f := range all {
		if f.Root == wanted.Root {
			return f
		}
	}
	return nil
}

func (b *builder) foundRules() []*policy.PathRule {
	var rules []*policy.PathRule
	for i := range b.policy.Paths {
		if r := &b.policy.Paths[i]; r.Found {
			rules = append(rules, r)
		}
	}
	return rules
}

// foundFile hides one file, by the rules that match its name.
func (b *builder) foundFile(rules []*policy.PathRule, root string, f hostfs.FoundFile) {
	real, err := b.follow(path.Join(root, f.Path))
	if err != nil || real.info.Kind != hostfs.File && real.info.Kind != hostfs.Other || b.isSystemFile(&real) {
		return // gone since, or a link to a file that cannot be a secret
	}
	for _, r := range rules {
		if !search.Matches(strings.TrimPrefix(r.Path, "**/"), path.Base(f.Path)) {
			continue
		}
		if f.Tracked {
			b.notice(plan.NoticeInfo, fmt.Sprintf("%s: %s %q does not hide it, because git tracks it as it is: its content is in the repository", real.path, ruleName(r), r.Path), r.Origin)
			return
		}
		b.add(candidate{links: real.links, Path: plan.Path{
			Path: real.path, Kind: real.info.Kind, Access: policy.Hidden, Content: plan.Empty, Found: true, Written: r.Path, Reason: r.Reason, Origin: r.Origin,
		}})
	}
}

// systemFolders contain no secrets of a project. A link in the workspace that leads there
// hides nothing: a command could have made it to break the next command.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix", "/gnu", "/proc", "/sys", "/dev"}

func (b *builder) isSystemFile(r *realPath) bool {
	return len(r.links) > 0 && !pathx.Within(b.plan.Workspace, r.path) && inAny(systemFolders, r.path)
}

// noteUnseen adds notices about what a search left out.
func (b *builder) noteUnseen(f *hostfs.Found, rules []*policy.PathRule) {
	const all = "; the preset dotenv hides such files without a search"
	if f.Unseen > 0 {
		why := fmt.Sprintf("it has more than the %d folders that are looked into", f.Folders)
		if f.Slow {
			why = "that would have taken too long; the next command goes on"
		}
		b.notice(plan.NoticeWarning, fmt.Sprintf("%d or more folders in %s were not searched for %s: %s%s", f.Unseen, f.Root, few(rules), why, all), rules[0].Origin)
	}
	if f.Omitted > 0 {
		b.notice(plan.NoticeWarning, fmt.Sprintf("%d files that %s stand for are not hidden, because %s has too many of them%s", f.Omitted, few(rules), f.Root, all), rules[0].Origin)
	}
}

// few returns the names of some of the rules.
func few(rules []*policy.PathRule) string {
	const shown = 2
	names := make([]string, 0, shown)
	for _, r := range rules[:min(shown, len(rules))] {
		names = append(names, strings.TrimPrefix(r.Path, "**/"))
	}
	text := strings.Join(names, ", ")
	if more := len(rules) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more names", more)
	}
	return text
}
