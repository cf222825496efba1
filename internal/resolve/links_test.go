package resolve

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// F5 L6: no grant goes through a link that the command could replace.
func TestGrantsThroughLooseLinks(t *testing.T) {
	const link = "/home/ana/project/link"
	grants := map[string]policy.Policy{
		"paths.read":  workspacePolicy(rule(policy.Read, link)),
		"paths.write": workspacePolicy(rule(policy.Write, link+"/a")),
		"binds":       workspacePolicy().With(policy.WithBind(link, "/data/elsewhere", true)),
		"persist":     workspacePolicy().With(policy.WithPersist(link)),
		"sockets":     workspacePolicy().With(policy.AllowSocket("/home/ana/project/sock")),
	}
	for want, p := range grants {
		m := machine()
		m.FS.(hostfs.Tree)["/home/ana/project/sock"] = "-> /run/agent"
		_, err := Resolve(p, Request{Workspace: "/home/ana/project"}, m)
		var pe *PolicyError
		if !errors.As(err, &pe) || pe.Rule != want || !strings.Contains(pe.Reason, "link") || pe.Fix == "" {
			t.Errorf("%s: %v", want, err)
		}
	}
	// A link that nothing inside can change is as good as its target.
	p := mustResolve(t, workspacePolicy(rule(policy.Write, "/home/ana/corpus")), Request{}, machine())
	wantAccess(t, p, map[string]policy.Access{"/data/corpus/a": policy.Write})
}

// A5 L6: what a person granted is that path, and not what a link in it leads to
// later, also where no command could change the link now.
func TestGrantOfAPersonFollowsNoLink(t *testing.T) {
	for _, layer := range []policy.Layer{policy.LayerGrant, policy.LayerKept} {
		granted := func(path string) policy.PathRule {
			return policy.PathRule{Path: path, Access: policy.Write, Optional: true, Origin: policy.Origin{Layer: layer, Source: "grant x"}}
		}
		// Nor is it what a name that looks like a pattern or a variable would mean in a
		// policy: who asks may have made a file of that name.
		for _, path := range []string{"/home/ana/corpus", "/data/*", "/data/{corpus,other}", "/data/corpu?", "/data/$CORPUS", "/data/$$CORPUS"} {
			m := machine()
			m.Environ = append(m.Environ, "CORPUS=corpus")
			p := mustResolve(t, workspacePolicy(granted(path)), Request{}, m)
			wantAccess(t, p, map[string]policy.Access{"/data/corpus/a": policy.Read})
			if path == "/home/ana/corpus" && !slices.ContainsFunc(p.Notices, func(n plan.Notice) bool { return strings.Contains(n.Text, "now leads to another file") }) {
				t.Errorf("there is no notice: %v", p.Notices)
			}
		}
		p := mustResolve(t, workspacePolicy(granted("/data/corpus")), Request{}, machine())
		wantAccess(t, p, map[string]policy.Access{"/data/corpus/a": policy.Write})
	}
}

// F14 L6: a rule that hides or protects keeps the links on its way.
func TestRulesThroughLooseLinksKeepThem(t *testing.T) {
	const link = "/home/ana/project/link"
	protect := rule(policy.Read, link)
	protect.Protect = true
	for _, r := range []policy.PathRule{rule(policy.Hidden, link), protect} {
		p := mustResolve(t, workspacePolicy(r), Request{}, machine())
		if l := p.Lookup(link); l.Path != link || l.Content != plan.Link || !l.Protect || l.Target != "/data/corpus" {
			t.Errorf("%v: the link has the line %+v", r.Access, l)
		}
	}
	p := mustResolve(t, workspacePolicy(rule(policy.Hidden, "/home/ana/corpus")), Request{}, machine())
	if l := p.Lookup("/home/ana/corpus"); l.Content == plan.Link {
		t.Errorf("a link out of reach has a line: %+v", l)
	}
}

// N9: a pattern stays one where a file has its very name, and needs no root.
func TestPatternsStay(t *testing.T) {
	m := machine()
	m.FS.(hostfs.Tree)["/home/ana/project/*.pem"] = "file"
	p := mustResolve(t, workspacePolicy(rule(policy.Hidden, "/home/ana/project/*.pem"), rule(policy.Hidden, "**/*.key")), Request{}, m)
	if len(p.Globs) != 2 || p.Globs[0].Pattern != "/home/ana/project/*.pem" || p.Globs[1].Pattern != "/**/*.key" {
		t.Errorf("patterns: %+v", p.Globs)
	}
	wantAccess(t, p, map[string]policy.Access{"/home/ana/project/*.pem": policy.Hidden})
}

// A1: /etc/mtab leads into the command's own /proc, not to the caller's.
func TestLinkIntoProc(t *testing.T) {
	m := machine()
	tree := m.FS.(hostfs.Tree)
	tree["/etc/mtab"], tree["/proc/self"], tree["/proc/77/mounts"] = "-> ../proc/self/mounts", "-> 77", "file"
	p := mustResolve(t, policy.Policy{Paths: workspacePolicy().Paths}, Request{}, m)
	if l := p.Lookup("/proc/77/mounts"); l.Path != "/proc" {
		t.Errorf("a process of the host is shown: %+v", l)
	}
}

// L2 L6: a persisted folder hides nothing that is not in it, and makes nothing
// of cloche's own.
func TestHiddenInPersisted(t *testing.T) {
	p := mustResolve(t, workspacePolicy().With(policy.WithPersist("~/.config", "~/.cache")), Request{}, machine())
	for _, e := range p.Paths {
		if strings.HasSuffix(e.Path, "/cloche") && !strings.Contains(e.Path, ".local") {
			t.Errorf("a line in a persisted folder: %+v", e)
		}
	}
}

// N8: a part of a git directory is not writable under another name, by which nobody
// would know that it is one.
func TestPartsOfGitDirectoriesKeepTheirNames(t *testing.T) {
	m := machine()
	tree := m.FS.(hostfs.Tree)
	for _, name := range []string{"/home/ana/project/.git/config", "/data/bare/HEAD", "/data/bare/config", "/data/linked/HEAD", "/data/linked/commondir", "/data/linked/config.worktree"} {
		tree[name] = "file"
	}
	for _, name := range []string{"/home/ana/project/.git/hooks", "/data/bare/objects", "/data/bare/refs"} {
		tree[name] = "dir"
	}
	req := Request{Workspace: "/home/ana/project"}
	for _, source := range []string{"/home/ana/project/.git/config", "/home/ana/project/.git/hooks", "/data/bare/config", "/data/linked/config.worktree"} {
		_, err := Resolve(workspacePolicy().With(policy.WithBind(source, "/opt/x", false)), req, m)
		var pe *PolicyError
		if !errors.As(err, &pe) || pe.Rule != "binds" || !strings.Contains(pe.Reason, "git directory") || pe.Fix == "" {
			t.Errorf("%s, bound elsewhere: %v", source, err)
		}
		mustResolve(t, workspacePolicy().With(policy.WithBind(source, "/opt/x", true)), req, m)
	}
	mustResolve(t, workspacePolicy().With(policy.WithBind("/home/ana/project/.git", "/opt/x", false)), req, m)
	p := workspacePolicy()
	p.Remap = "/workspace"
	if _, err := Resolve(p, Request{Workspace: "/home/ana/project/.git/hooks"}, m); err == nil || !strings.Contains(err.Error(), "git directory") {
		t.Errorf("a workspace in a git directory, remapped: %v", err)
	}
}
