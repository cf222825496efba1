package resolve

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/search"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// withFiles is the test machine with more files in the workspace.
func withFiles(files hostfs.Tree) *host.Snapshot {
	m := machine()
	tree := maps.Clone(m.FS.(hostfs.Tree))
	maps.Copy(tree, files)
	m.FS = tree
	return m
}

// found are the lines of a plan that a search led to.
func found(p *plan.Plan) []string {
	var out []string
	for _, e := range p.Paths {
		if e.Found {
			out = append(out, e.Path)
		}
	}
	return out
}

// L6: .env files are hidden at any depth, those that are shared are not,
// and neither is a folder of such a name.
func TestFoundFiles(t *testing.T) {
	m := withFiles(hostfs.Tree{
		project + "/.env": "file", project + "/a/b/.env.local": "file", project + "/a/.env.example": "file", project + "/a/.env.test": "file",
		project + "/node_modules/x/.env": "file", project + "/py/.env/bin/python": "file", "/home/ana/other/.env": "file",
		project + "/l/.env": "-> ../real/values", project + "/real/values": "file",
		project + "/m/.env": "-> /usr/bin/sh", "/usr/bin/sh": "exec", project + "/n/.env": "-> /home/ana/vars", "/home/ana/vars": "file",
		project + "/o/.env": "-> nowhere", project + "/p/.env": "-> .env", project + "/q/.env": "-> ../a",
	})
	p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace"), Request{}, m)
	want := []string{project + "/.env", project + "/a/b/.env.local", project + "/real/values", "/home/ana/vars"}
	if got := found(p); !slices.Equal(got, want) {
		t.Errorf("hidden are %q, want %q", got, want)
	}
	v := judge.NewFiles(p).Path(project + "/a/b/.env.local")
	if v.Rule != "paths.hide_found" || v.Subject != "**/.env.local" || v.Origin.Source != "preset secrets" || v.Reason == "" {
		t.Errorf("the verdict is %+v", v)
	}
	if p.HidesByPattern() {
		t.Error("reading is judged by names")
	}
}

// L6 F14: one file is granted by naming it, in a higher layer; a folder around it
// is not enough.
func TestFoundFilesGranted(t *testing.T) {
	m := withFiles(hostfs.Tree{project + "/a/.env": "file", project + "/b/.env": "file"})
	for text, want := range map[string][]string{
		"paths: {read: [./a/.env]}":               {project + "/b/.env"},
		"paths: {write: [./a/.env]}":              {project + "/b/.env"},
		"paths: {write: [./a]}":                   {project + "/a/.env", project + "/b/.env"},
		"paths: {hide_found: ['**/*.toml']}":      {project + "/a/.env", project + "/b/.env"},
		"paths: {hide_found: ['**/.e?v']}":        {project + "/a/.env", project + "/b/.env"},
		"paths: {read: [./a/.env, ./b/.env]}":     nil,
		"paths: {hide: [./a], read: [./b/.env]}":  nil,
		"paths: {hide: ['**/.env'], write: [./]}": {project + "/a/.env", project + "/b/.env"},
	} {
		if got := found(mustResolve(t, merged(t, policy.LayerCommand, text, "workspace"), Request{}, m)); !slices.Equal(got, want) {
			t.Errorf("%s: hidden are %q, want %q", text, got, want)
		}
	}
}

// N8: what git tracks as it is stays, and that is said.
func TestFoundFilesTracked(t *testing.T) {
	m := withFiles(hostfs.Tree{project + "/a/.env": "file", project + "/b/.env": "file"})
	m.Found = []*hostfs.Found{{Root: project, Folders: 3, Files: []hostfs.FoundFile{{Path: "a/.env", Tracked: true}, {Path: "b/.env"}, {Path: "gone/.env"}}}}
	p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace"), Request{}, m)
	if got := found(p); !slices.Equal(got, []string{project + "/b/.env"}) {
		t.Errorf("hidden are %q", got)
	}
	if !hasNotice(p, plan.NoticeInfo, project+"/a/.env", "git tracks it") {
		t.Errorf("the notices are %v", p.Notices)
	}
}

func hasNotice(p *plan.Plan, kind plan.NoticeKind, words ...string) bool {
	return slices.ContainsFunc(p.Notices, func(n plan.Notice) bool {
		return n.Kind == kind && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(n.Text, w) })
	})
}

// F14: what was not looked into is said, with what to do.
func TestFoundFilesBeyondTheBound(t *testing.T) {
	for name, tt := range map[string]struct {
		found *hostfs.Found
		words []string
	}{
		"folders": {found: &hostfs.Found{Folders: 20000, Unseen: 17}, words: []string{"17 or more folders", "20000", "preset dotenv"}},
		"time":    {found: &hostfs.Found{Folders: 20, Unseen: 17, Slow: true}, words: []string{"17 or more folders", "the next command goes on", "preset dotenv"}},
		"files":   {found: &hostfs.Found{Folders: 20, Omitted: 3}, words: []string{"3 files", "not hidden", "preset dotenv"}},
	} {
		m := machine()
		tt.found.Root = project
		m.Found = []*hostfs.Found{tt.found}
		p := mustResolve(t, merged(t, policy.LayerCommand, "", "workspace"), Request{}, m)
		if !hasNotice(p, plan.NoticeWarning, tt.words...) {
			t.Errorf("%s: the notices are %v", name, p.Notices)
		}
	}
}

// L6: where a search cannot be made, that is said; a policy without such rules
// says nothing.
func TestFoundFilesNotSearched(t *testing.T) {
	ws := t.TempDir()
	live := machine()
	live.FS, live.Found = hostfs.OS{}, nil
	for presets, want := range map[string]bool{"workspace": true, "caches": false} {
		p, err := Resolve(merged(t, policy.LayerCommand, "paths: {write: [urn:cloche:workspace]}", presets), Request{Workspace: ws}, live)
		if err != nil {
			t.Fatal(err)
		}
		if hasNotice(p, plan.NoticeWarning, "could not be searched") != want {
			t.Errorf("%s: the notices are %v", presets, p.Notices)
		}
	}
}

// L6: a folder that the policy names is searched like the workspace.
func TestFoundFilesOfNamedFolder(t *testing.T) {
	m := withFiles(hostfs.Tree{"/srv/app/x/.env": "file", project + "/a/.env": "file", "/srv/other/.env": "file"})
	p := mustResolve(t, policy.Workspace("/srv/app"), Request{}, m)
	if got := found(p); !slices.Equal(got, []string{project + "/a/.env", "/srv/app/x/.env"}) {
		t.Errorf("hidden are %q", got)
	}
	roots := func(workspace, named string) (out []string) {
		p := policy.Workspace(named)
		for _, s := range Searches(&p, workspace, "") {
			out = append(out, s.Root)
		}
		return out
	}
	for _, tt := range []struct{ workspace, named, want string }{{"/a", "/a/b", "/a"}, {"/a/b", "/a", "/a"}, {"/a", "/a", "/a"}, {"/b", "/a", "/a /b"}} {
		if got := strings.Join(roots(tt.workspace, tt.named), " "); got != tt.want {
			t.Errorf("searched are %q, want %q", got, tt.want)
		}
	}
}

// L3: masks move with the workspace.
func TestFoundFilesRemapped(t *testing.T) {
	m := withFiles(hostfs.Tree{project + "/a/.env": "file"})
	p := mustResolve(t, merged(t, policy.LayerCommand, "remap: /workspace", "workspace"), Request{}, m)
	if got := found(p); !slices.Contains(got, "/workspace/a/.env") {
		t.Errorf("hidden are %q", got)
	}
	if p.Access("/workspace/a/.env") != policy.Hidden || p.Access(project+"/a/.env") != policy.Hidden {
		t.Error("it can be seen")
	}
}

// L6: an untrusted project's file may hide more, and open nothing.
func TestFoundFilesOfUntrusted(t *testing.T) {
	m := withFiles(hostfs.Tree{project + "/a/app.key": "file", project + "/a/.env": "file"})
	doc, err := policy.ParseIn("project", project, []byte("paths: {hide_found: ['**/*.key'], read: [./a/.env]}"))
	if err != nil {
		t.Fatal(err)
	}
	pol, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerProject, Untrusted: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := found(mustResolve(t, pol, Request{}, m)); !slices.Equal(got, []string{project + "/a/.env", project + "/a/app.key"}) {
		t.Errorf("hidden are %q", got)
	}
}

// L6: a search leaves out what the preset of sinks does, and the list is
// documented.
func TestFoldersNotSearched(t *testing.T) {
	left := search.NotSearched[:]
	doc, err := policy.FromPreset("sinks")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range doc.Exempt {
		if e.IsName() && !slices.Contains(left, e.Folder) {
			t.Errorf("%s, in which no sink is held, is searched", e.Folder)
		}
	}
	text, err := os.ReadFile("../../docs/reference/protected-files.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "Not searched are")
	section, _, _ = strings.Cut(section, "A search ends")
	for _, name := range left {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("docs/reference/protected-files.md does not say that %s is not searched", name)
		}
	}
}
