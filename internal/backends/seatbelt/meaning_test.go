package seatbelt

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const testTmp = "/private/var/folders/zz/abc/T/cloche-1"

// parsed is the profile of a plan, read by a reader of its own.
func parsed(t testing.TB, p *plan.Plan) (*readProfile, string) {
	t.Helper()
	text, _, err := Profile(p)
	if err != nil {
		t.Fatal(err)
	}
	profile, err := parseProfile(text, map[string]string{tmpParam: testTmp})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return profile, text
}

// allows asks a profile in both readings, which must agree.
func allows(t testing.TB, p *readProfile, r request) bool {
	t.Helper()
	got := p.allows(r)
	if byName := p.allowsByName(r); byName != got {
		t.Errorf("%+v: by order %v, by name %v", r, got, byName)
	}
	return got
}

// A world makes random plans and paths from few names, so that they meet.
type world struct{ *rand.Rand }

var worldNames = []string{"a", "b", "Src", ".git", "hooks", "config", ".env", "node_modules", "vendor", "k.pem", ".config", "fish"}

func (w world) path(most int) string {
	p := ""
	for range 1 + w.IntN(most) {
		p += "/" + worldNames[w.IntN(len(worldNames))]
	}
	return p
}

func (w world) origin() policy.Origin {
	layers := []policy.Layer{policy.LayerPreset, policy.LayerUser, policy.LayerCommand}
	return policy.Origin{Layer: layers[w.IntN(len(layers))], Source: "random"}
}

func (w world) plan() *plan.Plan {
	p := &plan.Plan{Paths: []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Access(w.IntN(2))}}}
	if p.Paths[0].Access == policy.Hidden {
		p.Paths[0].Content = plan.Empty
	}
	for range w.IntN(7) {
		at := w.path(4)
		w.addLine(p, plan.Path{Path: at, Source: at, Kind: hostfs.Dir, Access: policy.Access(w.IntN(3)), Origin: w.origin()})
	}
	slices.SortFunc(p.Paths, func(a, b plan.Path) int { return strings.Compare(a.Path, b.Path) })
	patterns := []string{"**/.env", "**/*.pem", "**/.config/fish", "**/Src", "/a/**/k.pem", "/a/b/*.pem", "**/{a,b}/.env", "/a/b/**", "**/vendor"}
	for range w.IntN(4) {
		g := plan.Glob{Pattern: patterns[w.IntN(len(patterns))], Access: policy.Access(w.IntN(2)), Origin: w.origin()}
		if g.Access == policy.Read && w.IntN(2) == 0 {
			g.ExceptUnder = []string{"node_modules", "vendor", w.path(3)}
		}
		p.Globs = append(p.Globs, g)
	}
	return p
}

// addLine adds a line as a resolver does: one for each path, and one of a file
// that is not trusted only where it takes away.
func (w world) addLine(p *plan.Plan, e plan.Path) {
	if slices.ContainsFunc(p.Paths, func(o plan.Path) bool { return o.Path == e.Path }) {
		return
	}
	if w.IntN(4) == 0 && e.Access < p.Access(e.Path) {
		e.Origin = policy.Origin{Layer: policy.LayerProject, Untrusted: true}
	}
	if e.Access == policy.Hidden {
		e.Content, e.Source = plan.Empty, ""
	}
	p.Paths = append(p.Paths, e)
}

// C5 W5 A1 A2: for any plan and path the profile allows what the plan says, and
// nothing else: deny inside allow, allow inside deny, patterns, exemptions.
func TestProfileMeansThePlan(t *testing.T) {
	rounds := 600
	if testing.Short() {
		rounds = 100
	}
	tooStrict, asked := 0, 0
	for seed := range rounds {
		w := world{rand.New(rand.NewPCG(uint64(seed), 1))}
		p := w.plan()
		profile, text := parsed(t, p)
		oracle := judge.NewFiles(atHome(p))
		for range 60 {
			at := w.path(6)
			verdict := oracle.Path(at)
			asked++
			if problem := compare(t, profile, at, verdict.Access); problem == "too strict" && stricter(at) {
				tooStrict++
			} else if problem != "" {
				t.Fatalf("seed %d: %s is %s: %s (%+v)\nlines %+v\nglobs %+v\n%s", seed, at, verdict.Access, problem, verdict, p.Paths, p.Globs, text)
			}
		}
	}
	if tooStrict*1000 > asked {
		t.Errorf("%d of %d answers were too strict", tooStrict, asked)
	}
}

// stricter reports whether a path is one for which a profile may say no though
// the plan says yes: what a pattern matches lies between two excepted folders,
// or the name of a pattern is written in another case.
func stricter(p string) bool {
	n := 0
	for _, name := range strings.Split(p, "/") {
		if name == "node_modules" || name == "vendor" {
			n++
		}
	}
	return n > 1
}

// compare returns how a profile differs from an access.
func compare(t testing.TB, p *readProfile, at string, want policy.Access) string {
	t.Helper()
	for _, op := range []struct {
		name string
		need policy.Access
	}{{"file-read-data", policy.Read}, {"file-map-executable", policy.Read}, {"process-exec", policy.Read}, {"file-write-data", policy.Write}} {
		got := allows(t, p, request{Operation: op.name, Path: at})
		switch may := want >= op.need; {
		case got && !may:
			return op.name + " is open"
		case may && !got:
			return "too strict"
		}
	}
	for _, op := range []string{"file-write-create", "file-write-unlink", "file-write-mode", "file-write-xattr"} {
		if want != policy.Write && allows(t, p, request{Operation: op, Path: at, Folder: true}) {
			return op + " is open"
		}
	}
	if allows(t, p, request{Operation: "file-write-setugid", Path: at}) || allows(t, p, request{Operation: "file-link", Path: at}) {
		return "set-id bits or hard links are open"
	}
	return ""
}

// A2: no other spelling of a name that macOS takes for the same one gets past a
// rule that takes away, nor does a second path of the same folder.
func TestOtherSpellings(t *testing.T) {
	p := &plan.Plan{
		Paths: []plan.Path{
			{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
			{Path: "/Users/ana/project", Source: "/Users/ana/project", Kind: hostfs.Dir, Access: policy.Write},
			{Path: "/Users/ana/.ssh", Kind: hostfs.Dir, Content: plan.Empty},
			{Path: "/Users/ana/Café/Kasse", Kind: hostfs.Dir, Content: plan.Empty},
			{Path: "/etc/ssl/private", Kind: hostfs.Dir, Content: plan.Empty},
			{Path: "/Users/ana/project/Makefile", Source: "/Users/ana/project/Makefile", Kind: hostfs.File, Access: policy.Read, Protect: true},
		},
		Globs: []plan.Glob{{Pattern: "**/.envrc", Access: policy.Read}, {Pattern: "**/office.ini", Access: policy.Read}},
	}
	profile, text := parsed(t, p)
	for _, hidden := range []string{
		"/Users/ana/.ssh", "/Users/ana/.SSH/id", "/users/ANA/.ssh/id", "/System/Volumes/Data/Users/ana/.ssh/id", "/Users/ana/.\u017fsh/id", "/Users/ana/.\u00dfh/id",
		"/Users/ana/Cafe\u0301/Kasse/x", "/Users/ana/CAF\u00c9/kasse", "/Users/ana/Caf\u00e9/\u212aasse", "/private/etc/ssl/private/key", "/etc/SSL/private",
	} {
		if allows(t, profile, request{Operation: "file-read-data", Path: hidden}) {
			t.Errorf("%q can be read\n%s", hidden, text)
		}
	}
	for _, kept := range []string{
		"/Users/ana/project/makefile", "/Users/ana/project/MAKEFILE", "/Users/ana/project/sub/.ENVRC", "/Users/ana/project/.EnvRc/x", "/Users/ana/project/ma\u212aefile",
		"/Users/ana/project/o\ufb03ce.ini", "/Users/ana/project/of\ufb01ce.INI", "/Users/ana/project/o\ufb00ice.ini",
	} {
		if allows(t, profile, request{Operation: "file-write-create", Path: kept}) {
			t.Errorf("%q can be made", kept)
		}
	}
	for _, open := range []string{"/Users/ana/project/makefile2", "/Users/ana/project/.envrc2", "/Users/ana/project/my.envrc"} {
		if !allows(t, profile, request{Operation: "file-write-create", Path: open}) {
			t.Errorf("%q cannot be made", open)
		}
	}
	for _, open := range []string{"/Users/ana/.sshx", "/Users/ana/Caf\u00e9", "/etc/ssl", "/private/etc/hosts"} {
		if !allows(t, profile, request{Operation: "file-read-data", Path: open}) {
			t.Errorf("%q cannot be read", open)
		}
	}
}

// A2 N8: whoever moves folders gets nothing out of a rule about names.
func TestMovesAreHeld(t *testing.T) {
	ws := "/Users/ana/project"
	dir := func(p string, a policy.Access) plan.Path {
		return plan.Path{Path: p, Source: p, Kind: hostfs.Dir, Access: a}
	}
	hidden := plan.Path{Path: ws + "/app/deep/secret", Kind: hostfs.File, Content: plan.Empty}
	missing := plan.Path{Path: ws + "/tools/run.sh", Kind: hostfs.Missing, Access: policy.Read, Protect: true}
	p := &plan.Plan{
		Paths: []plan.Path{dir("/", policy.Read), dir(ws, policy.Write), hidden, missing},
		Globs: []plan.Glob{
			{Pattern: "**/.vscode/tasks.json", Access: policy.Read, ExceptUnder: []string{"node_modules"}},
			{Pattern: ws + "/src/**/*.pem", Access: policy.Hidden},
		},
	}
	profile, text := parsed(t, p)
	deny := func(operation, at string) {
		t.Helper()
		if allows(t, profile, request{Operation: operation, Path: at, Folder: true}) {
			t.Errorf("%s of %s is open\n%s", operation, at, text)
		}
	}
	for _, at := range []string{"/app", "/app/deep", "/tools", "/.vscode", "/sub/.vscode", "/sub/.VSCode", "/src/keys", "/.git", "/sub/.git"} {
		deny("file-write-unlink", ws+at)
	}
	for _, at := range []string{"/tools", "/.vscode", "/sub/.VSCODE", "/.git", "/.git/hooks/pre-commit", "/.git/config"} {
		deny("file-write-create", ws+at)
	}
	deny("file-write-unlink", ws)
	deny("file-write-unlink", testTmp)
	for _, at := range []string{"/sub", "/node_modules/x/.vscode", "/.vscode/launch.json", "/tools/x", "/app/deep/y", "/.git/objects/aa/bb"} {
		if !allows(t, profile, request{Operation: "file-write-unlink", Path: ws + at}) {
			t.Errorf("%s cannot be removed", at)
		}
	}
	if !allows(t, profile, request{Operation: "file-write-unlink", Path: ws + "/src/main.go"}) {
		t.Error("a file in the folder of a pattern cannot be removed")
	}
}

// W5: the way to what can be read can be walked, and nothing beside it is seen.
func TestAncestors(t *testing.T) {
	ws := "/Users/ana/work/project"
	p := &plan.Plan{Paths: []plan.Path{
		{Path: "/", Kind: hostfs.Dir, Content: plan.Empty},
		{Path: "/usr", Source: "/usr", Kind: hostfs.Dir, Access: policy.Read},
		{Path: ws, Source: ws, Kind: hostfs.Dir, Access: policy.Write},
	}}
	profile, _ := parsed(t, p)
	for dir := path.Dir(ws); dir != "/"; dir = path.Dir(dir) {
		if !allows(t, profile, request{Operation: "file-read-metadata", Path: dir, Folder: true}) {
			t.Errorf("%s cannot be walked through", dir)
		}
		if allows(t, profile, request{Operation: "file-read-data", Path: dir, Folder: true}) {
			t.Errorf("%s can be listed", dir)
		}
	}
	for _, beside := range []string{"/Users/ana/other", "/Users/bea", "/Library"} {
		if allows(t, profile, request{Operation: "file-read-metadata", Path: beside}) {
			t.Errorf("%s can be seen", beside)
		}
	}
	for _, at := range []string{testTmp, testTmp + "/x/y"} {
		if !allows(t, profile, request{Operation: "file-write-create", Path: at}) || !allows(t, profile, request{Operation: "file-read-data", Path: at}) {
			t.Errorf("%s cannot be used", at)
		}
	}
	for _, at := range []string{"/private/tmp/x", path.Dir(testTmp) + "/other", "/tmp/x"} {
		if allows(t, profile, request{Operation: "file-write-create", Path: at}) || allows(t, profile, request{Operation: "file-read-data", Path: at}) {
			t.Errorf("%s of others can be used", at)
		}
	}
}

// Patterns match what they do on Linux.
func TestPatternExpressions(t *testing.T) {
	patterns := []string{"**/a", "**/*.pem", "/a/*/b", "/a/**", "/a/**/b", "/**/a/b", "**/{a,b.c}/d", "**/[ab]x", "**/a?", "**/.config/fish", `**/a\*b`, "/a/{b,c/d}"}
	names := []string{"a", "b", "c", "d", "x.pem", "ax", "ab", "b.c", ".config", "fish", "a*b", "axb"}
	for seed := range 3000 {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		p := ""
		for range 1 + r.IntN(4) {
			p += "/" + names[r.IntN(len(names))]
		}
		pattern := patterns[r.IntN(len(patterns))]
		got := matchRegex(t, partsOf(pattern).expression()+andBelow, p)
		if want := pathx.MatchGlob(pattern, p); got != want && (want || !strings.Contains(pattern, "?")) {
			t.Fatalf("%s on %s: %v, want %v (%s)", pattern, p, got, want, partsOf(pattern).expression())
		}
	}
}

func matchRegex(t *testing.T, expression, p string) bool {
	t.Helper()
	text := fmt.Sprintf("(version 1) (deny default) (allow file-read* (regex %s))", quote(expression))
	profile, err := parseProfile(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return profile.allows(request{Operation: "file-read-data", Path: p})
}

// L1 A2: the corners that random plans seldom meet. A line of a file that is not
// trusted gives nothing back, and a folder is no exception from a pattern that
// matches it.
func TestCorners(t *testing.T) {
	dir := func(p string, a policy.Access, o policy.Origin) plan.Path {
		return plan.Path{Path: p, Source: p, Kind: hostfs.Dir, Access: a, Origin: o}
	}
	user := policy.Origin{Layer: policy.LayerUser}
	p := &plan.Plan{
		Paths: []plan.Path{
			dir("/", policy.Read, user), dir("/ws", policy.Write, user),
			dir("/ws/keys/given", policy.Read, policy.Origin{Layer: policy.LayerProject, Untrusted: true}),
			dir("/ws/keys/trusted", policy.Read, user),
		},
		Globs: []plan.Glob{
			{Pattern: "**/keys", Access: policy.Hidden, Origin: user},
			{Pattern: "**/gen", Access: policy.Read, Origin: user, ExceptUnder: []string{"/ws/gen/cache", "/ws/cache"}},
		},
	}
	profile, text := parsed(t, p)
	oracle := judge.NewFiles(p)
	for at, want := range map[string]policy.Access{
		"/ws/keys/given/x": policy.Hidden, "/ws/keys/trusted/x": policy.Read, "/ws/keys/x": policy.Hidden,
		"/ws/gen/cache/x": policy.Read, "/ws/cache/gen/x": policy.Write, "/ws/other/gen/x": policy.Read, "/ws/gen/cache/gen/x": policy.Read,
	} {
		if got := oracle.Path(at).Access; got != want {
			t.Errorf("the plan says %s of %s, not %s", got, at, want)
		}
		if problem := compare(t, profile, at, want); problem != "" {
			t.Errorf("%s is %s: %s\n%s", at, want, problem, text)
		}
	}
}
