package judge

import (
	"math/rand/v2"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func line(path string, a policy.Access, l policy.Layer) plan.Path {
	return plan.Path{Path: path, Source: path, Kind: hostfs.Dir, Access: a, Origin: policy.Origin{Layer: l}}
}

func glob(pattern string, a policy.Access, l policy.Layer, except ...string) plan.Glob {
	return plan.Glob{Pattern: pattern, Access: a, ExceptUnder: except, Origin: policy.Origin{Layer: l, Source: "test"}}
}

// sample is a workspace with rules of every kind about names.
func sample() *plan.Plan {
	missing := line("/ws/.github/workflows", policy.Read, policy.LayerUser)
	missing.Kind, missing.Protect = hostfs.Missing, true
	return &plan.Plan{
		Paths: []plan.Path{
			line("/", policy.Read, policy.LayerPreset),
			line("/ws", policy.Write, policy.LayerPreset),
			line("/ws/.vscode", policy.Write, policy.LayerCommand),
			line("/ws/a/.idea/own", policy.Write, policy.LayerPreset),
			line("/ws/kept/in", policy.Read, policy.LayerUser),
			missing,
		},
		Absent: []plan.Absent{{Path: "/ws/.secret", Rule: &policy.PathRule{Path: "/ws/.secret", Origin: policy.Origin{Layer: policy.LayerPreset}}}},
		Globs: []plan.Glob{
			glob("/**/.vscode", policy.Read, policy.LayerPreset, "node_modules"),
			glob("/**/.idea", policy.Read, policy.LayerPreset),
			glob("/**/.cargo/config.toml", policy.Read, policy.LayerPreset),
			glob("/**/*.pem", policy.Hidden, policy.LayerCommand),
			glob("/ws/src/**/gen", policy.Read, policy.LayerUser),
			glob("**/.env", policy.Hidden, policy.LayerUser),
			glob("/**/{one,two}", policy.Hidden, policy.LayerUser),
			glob("/**/k/{x,y}.key", policy.Hidden, policy.LayerUser),
			glob(`/ws/w\[1]/**/in`, policy.Hidden, policy.LayerUser),
		},
	}
}

// N9: a preset for a tool that protects all names in a folder gives back those that it
// lists as writable, at those very paths, and nothing that another layer closes.
func TestToolPatternsYield(t *testing.T) {
	j := NewFiles(&plan.Plan{
		Paths: []plan.Path{line("/", policy.Read, policy.LayerPreset), line("/h/.a", policy.Write, policy.LayerTool), line("/h/.a/log", policy.Write, policy.LayerTool), line("/h/.a/off", policy.Write, policy.LayerTool)},
		Globs: []plan.Glob{glob("/h/.a/*", policy.Read, policy.LayerTool), glob("/h/.a/o*", policy.Read, policy.LayerUser)},
	})
	for path, want := range map[string]policy.Access{
		"/h/.a/log": policy.Write, "/h/.a/log/x": policy.Write, "/h/.a/settings.json": policy.Read, "/h/.a/hooks/x": policy.Read, "/h/.a/log2": policy.Read, "/h/.a/off/x": policy.Read,
	} {
		if got := j.Path(path); got.Access != want {
			t.Errorf("%s: %v, want %v", path, got.Access, want)
		}
	}
}

// F14 N9: what decides about a path, and where that matches.
func TestJudge(t *testing.T) {
	j := NewFiles(sample())
	for path, want := range map[string]string{
		"/etc/passwd":                       "read paths.read /",
		"/ws/main.go":                       "write paths.write /ws",
		"/ws/.vscode/settings.json":         "write paths.write /ws/.vscode",
		"/ws/x/.vscode":                     "read paths.protect /ws/x/.vscode",
		"/ws/x/.vscode/deep/er":             "read paths.protect /ws/x/.vscode",
		"/ws/node_modules/p/.vscode":        "write paths.write /ws",
		"/ws/a/.idea/x":                     "read paths.protect /ws/a/.idea",
		"/ws/a/.idea/own/x":                 "write paths.write /ws/a/.idea/own",
		"/ws/.idea2":                        "write paths.write /ws",
		"/ws/.cargo":                        "write paths.write /ws",
		"/ws/.cargo/config.toml":            "read paths.protect /ws/.cargo/config.toml",
		"/ws/sub/.cargo/config.toml":        "read paths.protect /ws/sub/.cargo/config.toml",
		"/ws/notcargo/config.toml":          "write paths.write /ws",
		"/ws/key.pem":                       "hidden paths.hide /ws/key.pem",
		"/usr/share/x.pem":                  "hidden paths.hide /usr/share/x.pem",
		"/ws/.vscode/key.pem":               "hidden paths.hide /ws/.vscode/key.pem",
		"/ws/src/a/b/gen/x.go":              "read paths.protect /ws/src/a/b/gen",
		"/ws/lib/gen":                       "write paths.write /ws",
		"/ws/deep/.env":                     "hidden paths.hide /ws/deep/.env",
		"/ws/.secret/x":                     "hidden paths.hide /ws/.secret",
		"/ws/a/one":                         "hidden paths.hide /ws/a/one",
		"/ws/two/x":                         "hidden paths.hide /ws/two",
		"/ws/{one,two}":                     "write paths.write /ws",
		"/ws/k/y.key":                       "hidden paths.hide /ws/k/y.key",
		"/ws/w[1]/a/in":                     "hidden paths.hide /ws/w[1]/a/in",
		"/ws/w1/a/in":                       "write paths.write /ws",
		"/ws/.github":                       "write paths.write /ws",
		"/ws/.github/workflows/ci.yml":      "read paths.protect /ws/.github/workflows",
		"/ws/kept/in/x":                     "read paths.read /ws/kept/in",
		"/ws/node_modules/p/.idea/x":        "read paths.protect /ws/node_modules/p/.idea",
		"/ws/node_modules/.vscode/x/.env":   "hidden paths.hide /ws/node_modules/.vscode/x/.env",
		"/ws/x/node_modules/q/.vscode/more": "write paths.write /ws",
	} {
		v := j.Path(path)
		if got := v.Access.String() + " " + v.Rule + " " + v.At; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// F7: a line of a file that nobody trusted gives nothing back.
func TestJudgeUntrusted(t *testing.T) {
	p := sample()
	p.Paths[2].Origin = policy.Origin{Layer: policy.LayerProject, Untrusted: true}
	if v := NewFiles(p).Path("/ws/.vscode/x"); v.Access != policy.Read {
		t.Errorf("an untrusted line opened it: %+v", v)
	}
}

// A line about the very path of a pattern wins if its layer is higher; within a
// layer the stricter does, but for the folders that presets are given.
func TestJudgeSamePath(t *testing.T) {
	for _, tt := range []struct {
		line, glob policy.Layer
		want       policy.Access
	}{
		{policy.LayerCommand, policy.LayerPreset, policy.Write},
		{policy.LayerUser, policy.LayerCommand, policy.Read},
		{policy.LayerUser, policy.LayerUser, policy.Read},
		{policy.LayerPreset, policy.LayerPreset, policy.Write},
	} {
		p := &plan.Plan{Paths: []plan.Path{line("/w/.vscode", policy.Write, tt.line)}, Globs: []plan.Glob{glob("**/.vscode", policy.Read, tt.glob)}}
		if v := NewFiles(p).Path("/w/.vscode/x"); v.Access != tt.want {
			t.Errorf("line of %v, pattern of %v: %v", tt.line, tt.glob, v.Access)
		}
	}
}

// N9: what a folder may not hold when it is moved.
func TestBelowAndNeedsWalk(t *testing.T) {
	j := NewFiles(sample())
	for path, want := range map[string]string{"/ws/x/.cargo": "config.toml", "/ws/.github": "workflows", "/ws/kept": "in", "/ws/plain": ""} {
		if got := strings.Join(j.Below(path), " "); got != want {
			t.Errorf("below %s: %q, want %q", path, got, want)
		}
	}
	if !j.NeedsWalk("/ws/a", "/ws/b") {
		t.Error("a pattern about a place needs no walk")
	}
	p := sample()
	p.Globs = p.Globs[:3]
	j = NewFiles(p)
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"/ws/a", "/ws/b", false},
		{"/ws/node_modules/a", "/ws/b", true},
		{"/ws/node_modules", "/ws/mods", true},
		{"/ws/node_modules/.a", "/ws/node_modules/a", false},
	} {
		if got := j.NeedsWalk(tt.from, tt.to); got != tt.want {
			t.Errorf("%s to %s: %v", tt.from, tt.to, got)
		}
	}
}

// What shows another file than the folder around it has to stay where it is, with every
// folder on its way, though it may be written.
func TestPinnedElsewhere(t *testing.T) {
	p := &plan.Plan{Paths: []plan.Path{
		{Path: "/ws", Source: "/real", Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/ws/a/persisted", Source: "/store/1", Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/ws/b/bound", Source: "/opt", Kind: hostfs.Dir, Access: policy.Read},
		{Path: "/ws/c/private", Content: plan.Empty, Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/ws/d/same", Source: "/real/d/same", Kind: hostfs.Dir, Access: policy.Write},
	}}
	j := NewFiles(p)
	for path, want := range map[string]bool{"/ws/a": true, "/ws/b": true, "/ws/c": true, "/ws/d": false, "/ws/d/same": true} {
		if _, got := j.Pinned(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// A mask has to stay where it is, with every folder on its way.
func TestPinned(t *testing.T) {
	j := NewFiles(sample())
	for path, want := range map[string]bool{"/ws/kept": true, "/ws/kept/in": true, "/ws/kept/in/x": false, "/ws/.github": false, "/ws/a": false, "/ws/.vscode": true, "/ws": true} {
		if _, got := j.Pinned(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestGuarded(t *testing.T) {
	p := sample()
	p.Paths = append(p.Paths, plan.Path{Path: "/tmp", Content: plan.Empty, Kind: hostfs.Dir, Access: policy.Write}, plan.Path{Path: "/tmp/in", Source: "/x", Kind: hostfs.Dir, Access: policy.Write},
		plan.Path{Path: "/own", Content: plan.Empty, Kind: hostfs.Dir, Access: policy.Write})
	want := "/ws /ws/.vscode /ws/a/.idea/own /tmp /tmp/in"
	if got := strings.Join(p.Guarded(), " "); got != want {
		t.Errorf("guarded %s, want %s", got, want)
	}
	if !p.HidesByPattern() {
		t.Error("a hidden pattern was not found")
	}
	p.Globs = nil
	if got := strings.Join(p.Guarded(), " "); got != want || !p.JudgesNames() {
		t.Errorf("without patterns, guarded %s, want %s", got, want)
	}
	p.Paths = []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read}, {Path: "/ws/f", Source: "/ws/f", Kind: hostfs.File, Access: policy.Write},
		{Path: "/tmp", Content: plan.Empty, Kind: hostfs.Dir, Access: policy.Write}, {Path: "/tmp/f", Source: "/x", Kind: hostfs.File, Access: policy.Write}}
	if got := strings.Join(p.Guarded(), " "); got != "/ws/f /tmp /tmp/f" || !p.JudgesNames() {
		t.Errorf("single files: guarded %s", got)
	}
	p.Paths = p.Paths[:1]
	if got := p.Guarded(); got != nil || p.JudgesNames() {
		t.Errorf("a plan in which nothing is written guards %v", got)
	}
}

// N9: names with one star are matched as the general matcher does.
func TestJudgeOneStar(t *testing.T) {
	patterns := []string{"/**/*", "**/*.pem", "/**/a*", "/**/a*b", "/**/*a", "/**/aa*aa", "/**/**", "/**/a**b", "/**/a\\*b", "/**/a*[b]", "/**/x/a*b"}
	names := []string{"a", "b", "ab", "a.b", "aab", "aa", "aaa", "aaaa", ".pem", "x.pem", "x.pemx", "a*b", "é", "a\nb", "a\xffb"}
	for _, text := range patterns {
		j := NewFiles(&plan.Plan{Paths: []plan.Path{line("/", policy.Write, policy.LayerPreset)}, Globs: []plan.Glob{glob(text, policy.Read, policy.LayerUser)}})
		for _, name := range names {
			for _, at := range []string{"/" + name, "/x/" + name, "/d/x/" + name} {
				want := policy.Write
				if pathx.MatchGlobExactly(text, at) || pathx.MatchGlobExactly(text, "/d/x") && strings.HasPrefix(at, "/d/x/") ||
					pathx.MatchGlobExactly(text, path.Dir(at)) && path.Dir(at) != "/" || pathx.MatchGlobExactly(text, "/d") && strings.HasPrefix(at, "/d/") {
					want = policy.Read
				}
				if got := j.Path(at).Access; got != want {
					t.Errorf("%s: %q is %v, want %v", text, at, got, want)
				}
			}
		}
	}
}

// What is remembered of a folder changes no decision: for any rules and any order of paths, each
// is that of a search from the start.
func TestJudgeRemembersFolders(t *testing.T) {
	names := []string{"a", "b", ".env", "k", "x.pem", "node_modules", ".vscode", "one"}
	parts := append([]string{"**", "*.pem", "{one,two}", "a*", "?"}, names...)
	accesses := []policy.Access{policy.Hidden, policy.Read, policy.Write}
	layers := []policy.Layer{policy.LayerPreset, policy.LayerUser, policy.LayerCommand}
	tightened := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		some := func(from []string, most int) string {
			text := ""
			for range 1 + r.IntN(most) {
				text += "/" + from[r.IntN(len(from))]
			}
			return text
		}
		p := &plan.Plan{Paths: []plan.Path{line("/", accesses[r.IntN(3)], policy.LayerPreset)}}
		for range r.IntN(6) {
			e := line(some(names, 4), accesses[r.IntN(3)], layers[r.IntN(3)])
			e.Origin.Untrusted = r.IntN(4) == 0
			p.Paths = append(p.Paths, e)
		}
		for range r.IntN(6) {
			g := glob(some(parts, 3), accesses[r.IntN(2)], layers[r.IntN(3)])
			if r.IntN(2) == 0 {
				g.Pattern = "/**" + g.Pattern
			}
			switch r.IntN(4) {
			case 0:
				g.ExceptUnder = []string{names[r.IntN(len(names))]}
			case 1:
				g.ExceptUnder = []string{some(names, 2)}
			}
			p.Globs = append(p.Globs, g)
		}
		j := NewFiles(p)
		folder := some(names, 4)
		for range 30 {
			if r.IntN(3) == 0 {
				folder = some(names, 4)
			}
			inside := folder + some(append(names, "..", "."), 2)
			got, want := j.Path(inside), j.search(path.Clean(inside))
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %s: %+v, want %+v\nlines %+v\npatterns %+v", seed, inside, got, want, p.Paths, p.Globs)
			}
			if want.Access != j.line(path.Clean(inside), trusted).Access {
				tightened++
			}
		}
	}
	if tightened < 1000 {
		t.Errorf("only %d decisions were those of patterns", tightened)
	}
}

func BenchmarkJudge(b *testing.B) {
	p := sample()
	for _, n := range []string{".bashrc", ".zshrc", ".envrc", ".npmrc", ".mcp.json"} {
		for range 60 {
			p.Globs = append(p.Globs, glob("/**/"+n+strings.Repeat("x", len(p.Globs)), policy.Read, policy.LayerPreset))
		}
	}
	j := NewFiles(p)
	for b.Loop() {
		j.Path("/ws/some/folder/with/a/file.go")
	}
}

// F14: what is pinned in a plan cannot be moved, by the judge of a broker either.
func TestPinnedAroundFound(t *testing.T) {
	hidden := func(p string, found bool) plan.Path {
		return plan.Path{Path: p, Access: policy.Hidden, Content: plan.Empty, Kind: hostfs.File, Found: found}
	}
	j := NewFiles(&plan.Plan{Paths: []plan.Path{
		{Path: "/", Access: policy.Read, Source: "/", Kind: hostfs.Dir},
		{Path: "/w", Access: policy.Write, Source: "/w", Kind: hostfs.Dir},
		hidden("/w/a/b/.env", true), hidden("/w/c/key", false), hidden("/w/c/d/.env", true),
	}})
	for dir, want := range map[string]bool{"/w/a": true, "/w/a/b": true, "/w/c": true, "/w/c/d": true, "/w/a/b/.env": true, "/w/e": false} {
		if _, pinned := j.Pinned(dir); pinned != want {
			t.Errorf("%s: %v", dir, pinned)
		}
	}
}

// A path that is written with ".." is judged as what it means. L3
func TestJudgedPathsAreCleaned(t *testing.T) {
	p := &plan.Plan{Paths: []plan.Path{
		{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
		{Path: "/workspace", Source: "/home/u/project", Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/home/u/.ssh", Kind: hostfs.Dir, Content: plan.Empty},
	}}
	j := NewFiles(p)
	for inside, want := range map[string]policy.Access{"/workspace/../etc/x": policy.Read, "/workspace/../home/u/.ssh/id": policy.Hidden, "/workspace/x": policy.Write} {
		if got := j.Path(inside).Access; got != want {
			t.Errorf("%q is %v", inside, got)
		}
	}
	if b, ok := FindBehind(p, "/workspace/../home/u/.ssh/id"); !ok || b.Path != "/home/u/.ssh/id" {
		t.Errorf("behind it is %+v, %v", b, ok)
	}
}
