package resolve

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// patternsOf are the patterns of a plan that are no preset's.
func patternsOf(p *plan.Plan) (list []string) {
	for _, g := range p.Globs {
		if g.Origin.Layer != policy.LayerPreset {
			list = append(list, g.Pattern)
		}
	}
	return list
}

// N9: a pattern is expanded like every path, and cleaned.
func TestPatternForms(t *testing.T) {
	s := machine()
	s.Environ = append(s.Environ, "NAME=key", "ODD=a[1]")
	for form, want := range map[string]string{
		"**/.env": "/**/.env", "**/$NAME": "/**/key", "**/${NO:-x}.pem": "/**/x.pem", "**/$ODD": `/**/a\[1]`,
		"**//x": "/**/x", "**/./x": "/**/x", "**/a/../x": "/**/x", "**/x/": "/**/x",
		"**/{a,b}": "/**/{a,b}", "/data/{a,b}": "/data/{a,b}", "~/{a,b}.pem": "/home/ana/{a,b}.pem", "**/{{x}}": `/**/\{\{x\}\}`,
		"urn:cloche:workspace/*.pem": "/home/ana/project/*.pem",
	} {
		p := mustResolve(t, workspacePolicy(rule(policy.Hidden, form)), Request{Name: "true"}, s)
		if got := patternsOf(p); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", form, got, want)
		}
	}
}

// N9: a pattern that would match nothing, or not what it seems to, is an error.
func TestPatternFaults(t *testing.T) {
	for form, want := range map[string]string{
		"**/": "names no file below **", "**/.": "names no file below **", "**/../x": "names no file below **",
		"**/a[b": "is no pattern", "**/{a,b": "is no pattern", "/data/[": "is no pattern", `**/a\`: "is no pattern",
		"**/{a/b,c}": "alternatives in braces hold a slash; write an entry for each", "**/$NO": "NO is not set",
	} {
		for _, r := range []policy.PathRule{rule(policy.Hidden, form), {Path: form, Access: policy.Read, Protect: true, Origin: policy.Origin{Layer: policy.LayerUser}}} {
			_, err := Resolve(workspacePolicy(r), Request{Name: "true", Workspace: "/home/ana/project"}, machine())
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), form[:2]) {
				t.Errorf("%s: %v, want %q", form, err, want)
			}
		}
	}
}

// N9: folders whose names would be read as a pattern are what patterns are relative to
// anyway: a workspace, moved or not, and every home.
func TestPatternsInOddFolders(t *testing.T) {
	const ws = "/home/ana/w[1]"
	s := machine()
	s.FS.(hostfs.Tree)[ws+"/key.pem"] = "file"
	rules := []policy.PathRule{rule(policy.Hidden, "urn:cloche:workspace/*.pem"), rule(policy.Hidden, "cwd/{a,b}")}
	hidden := func(p policy.Policy, at string) {
		t.Helper()
		j := judge.NewFiles(mustResolve(t, p, Request{Name: "true", Workspace: ws, Dir: ws}, s))
		for _, name := range []string{"/key.pem", "/a", "/b"} {
			if v := j.Path(at + name); v.Access != policy.Hidden {
				t.Errorf("%s%s: %v", at, name, v)
			}
		}
		if v := j.Path(at + "/c"); v.Access != policy.Write {
			t.Errorf("%s/c: %v", at, v)
		}
	}
	p := workspacePolicy(rules...)
	hidden(p, ws)
	p.Remap = "/{here}"
	hidden(p, "/{here}")

	s = machine()
	s.Home, s.Homes = "/home/{ana}", []string{"/home/a*a"}
	s.FS.(hostfs.Tree)["/home/a*a/project"], s.FS.(hostfs.Tree)["/home/{ana}"] = "dir", "dir"
	s.Environ = append(s.Environ, "XDG_CONFIG_HOME=/x[1]")
	preset := policy.Origin{Layer: policy.LayerPreset, Source: "preset"}
	p = workspacePolicy(policy.PathRule{Path: "~/.config/*.key", Access: policy.Hidden, Origin: preset}, policy.PathRule{Path: "~/.config/id", Access: policy.Hidden, Origin: preset, Optional: true})
	got := mustResolve(t, p, Request{Name: "true", Workspace: "/home/a*a/project"}, s)
	for _, want := range []string{`/home/\{ana\}/.config/*.key`, `/home/a\*a/.config/*.key`, `/x\[1]/*.key`} {
		if !slices.ContainsFunc(got.Globs, func(g plan.Glob) bool { return g.Pattern == want }) {
			t.Errorf("no pattern %s: %+v", want, got.Globs)
		}
	}
	if len(got.Globs) != 3 || len(got.Absent) != 3 {
		t.Errorf("%d patterns, %d absent paths: %+v %+v", len(got.Globs), len(got.Absent), got.Globs, got.Absent)
	}
}

// N9: the patterns of the presets, which a start takes as they are, are good.
func TestPresetPatterns(t *testing.T) {
	for _, name := range policy.Presets() {
		p, err := policy.FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Paths {
			if r := &p.Paths[i]; isPattern(r) && r.Origin.Layer == policy.LayerPreset {
				if normal, err := pathx.NormalGlob(r.Path); err != nil || normal != r.Path {
					t.Errorf("%s: %s: %q, %v", name, r.Path, normal, err)
				}
			}
		}
	}
}
