package judge

import (
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// linked is a home in which a project, cargo's directory and a cache may be written.
func linked() *plan.Plan {
	except := []string{"node_modules", "target", "/h/.cargo/git", "/h/.cache", "/h/closed"}
	private := line("/tmp", policy.Write, policy.LayerPreset)
	private.Content = plan.Empty
	return &plan.Plan{
		Paths: []plan.Path{
			line("/", policy.Read, policy.LayerPreset),
			line("/h/.cache", policy.Write, policy.LayerPreset),
			line("/h/.cargo", policy.Write, policy.LayerPreset),
			line("/h/ws", policy.Write, policy.LayerPreset),
			line("/h/ws/node_modules/own", policy.Write, policy.LayerUser),
			private,
		},
		Globs: []plan.Glob{
			glob("/**/.envrc", policy.Read, policy.LayerPreset, except...),
			glob("/**/.local/share/applications", policy.Read, policy.LayerPreset, except...),
		},
	}
}

// N9: which links lead to names that a rule is about.
func TestLeads(t *testing.T) {
	j := NewFiles(linked())
	for _, tt := range []struct {
		at, text string
		want     bool
	}{
		// A part of a pattern.
		{"/h/ws/.local", "w", true},
		{"/h/ws/.local/share", "../w", true},
		{"/h/ws/share", "w", false},
		{"/h/ws/target/.local", "w", false},
		// Into a directory that is exempt by its name.
		{"/h/ws/web", "target/web", true},
		{"/h/ws/web", "./target", true},
		{"/h/ws/web", "/h/ws/target/web", true},
		{"/h/ws/web", "/h/ws//target/./web/", true},
		{"/h/ws/web", "target/../w", true},
		{"/h/ws/web", "/h/ws/target/s/../../w", true},
		{"/h/ws/web", "/proc/self/cwd/target/web", true},
		{"/h/ws/web", "../../../../../node_modules/x", true}, // its directory may be moved
		{"/h/ws/web", "/usr/lib/node_modules/npm", false},
		{"/h/ws/web", "/h/ws/node_modules/own/x", false}, // a line of its own: names are protected there
		{"/h/ws/web", "targets/web", false},
		// Within one, out of one, or in its place.
		{"/h/ws/node_modules/a", "../target/web", false},
		{"/h/ws/node_modules/a", "../packages/a", false},
		{"/h/ws/packages/a/node_modules", "../../node_modules", false},
		{"/tmp/x", "/h/ws/target/web", false}, // nobody outside sees it
		// Into one that is exempt as a path.
		{"/h/ws/web", "/h/.cargo/git/web", true},
		{"/h/ws/web", "/h/.cargo", true},
		{"/h/ws/web", "/h/.cache/x", true},
		{"/h/ws/web", "/h/closed/x", false}, // which cannot be written
		{"/h/ws/web", "../.cargo/git", true},
		{"/h/ws/a/b/web", "../.cargo/git/web", true}, // after a/b is moved
		{"/h/ws/a/web", ".cargo/git/web", false},
		{"/h/ws/a/web", "../../.cargo", true},
		{"/h/ws/a/web", "git/web", false},
		{"/h/ws/a/web", "x/../git/web", true},
		{"/h/ws/a/web", "../../..", false},
		{"/h/ws/root", "/", false},
		{"/h/.cargo/x/y", "../git/web", true},
		{"/h/.cargo/x/y", "git/web", true},
		{"/h/.cargo/git/y", "../git/web", false},
		{"/h/.cargo/x", "registry/web", false},
	} {
		if v, got := j.Leads(tt.at, tt.text); got != tt.want {
			t.Errorf("%s to %s: %v, want %v: %+v", tt.at, tt.text, got, tt.want, v)
		}
	}
}

// N9: no option opens a link into an exempt directory, and none is suggested.
func TestLeadsSuggestsNothing(t *testing.T) {
	v, found := NewFiles(linked()).Leads("/h/ws/web", "target/web")
	d := plan.Denial{Decision: v}
	d.Op, d.Path = plan.OpSymlink, "/h/ws/web"
	Fixer{}.Fix(&d.Decision)
	const want = "denied symlink /h/ws/web: paths.protect (built-in: links, the link leads into target, where names are not protected; use a copy, or a link the other way round)"
	if !found || d.String() != want || d.Fix != nil || d.NoFix != "no option allows it" {
		t.Errorf("%s, %v, %s", d.String(), d.Fix, d.NoFix)
	}
}

// N9: a directory that brings links or exempt directories along is looked into.
func TestNeedsWalkForLinks(t *testing.T) {
	j := NewFiles(linked())
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"/h/ws/a", "/h/ws/b", false},
		{"/h/ws/a", "/h/.cargo/b", true},
		{"/h/.cargo/a", "/h/.cargo/b", false},
		{"/h/.cargo", "/h/.cargo2", true},
		{"/h/.cargo", "/h/.cargo", false},
		{"/h/ws/a", "/h/ws/target/a", false},
	} {
		if got := j.NeedsWalk(tt.from, tt.to); got != tt.want {
			t.Errorf("%s to %s: %v", tt.from, tt.to, got)
		}
	}
}
