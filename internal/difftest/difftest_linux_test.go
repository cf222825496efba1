package difftest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func TestMain(m *testing.M) {
	if code, is := isMain(); is {
		unix.Exit(code) // os.Exit sleeps first in a program built with the race detector
	}
	os.Exit(m.Run())
}

// backends are what every case runs on, in turn.
var backends = []struct{ name, needs string }{{"native", "userns"}, {"bwrap", "bwrap"}}

// N1 N7 F7: check, verify and suggestions agree with what happens, and an untrusted
// file adds nothing.
func TestDifferences(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs)
			f := newFuzzer(t, b.name)
			f.each(shortRun, f.run)
			t.Logf("%s: %d cases with %d operations; %d policies refused, %d verified, %d suggestions tried, %d untrusted files, MCP asked %d times",
				f.backend, f.cases, f.ops, f.refused, f.verified, f.grants, f.untrusted, f.asked)
		})
	}
}

// The fuzzer finds a sandbox that does not hold what check says: one whose backend
// compiles another policy than the one that is asked about.
func TestFindsDifferences(t *testing.T) {
	testenv.Need(t, "landlock", "userns")
	f := newFuzzer(t, "native")
	f.instead = func(p policy.Policy) policy.Policy {
		for i := range p.Paths {
			if p.Paths[i].Access == policy.Hidden {
				p.Paths[i].Access = policy.Read
			}
		}
		return p
	}
	for seed := range uint64(200) {
		if f.run(seed); len(f.found) > 0 {
			return
		}
	}
	t.Error("a sandbox that hides nothing was not noticed")
}

// shortRun is how many cases each backend has if nobody says how long to go on.
const shortRun = 120

// duration is how long new cases are made, or 0.
func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CLOCHE_DIFF_TIME")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CLOCHE_DIFF_TIME: %v", err)
	}
	return d
}

// A fuzzer makes cases and runs them on one backend.
type fuzzer struct {
	t        *testing.T
	world    *world
	self     string
	registry *backend.Registry
	snapshot *host.Snapshot
	backend  string
	verbose  bool
	// instead changes the policy that is enforced, and not the one that is asked.
	instead func(policy.Policy) policy.Policy
	// found are the differences, with the case.
	found []string

	cases, refused, ops, verified, grants, untrusted, asked int
	// Of cases that are learned: those with nothing to open, with rules, and with words alone.
	nothing, learned, left int
}

func newFuzzer(t *testing.T, name string) *fuzzer {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	base, err := os.MkdirTemp("", "diff")
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	base, err = filepath.EvalSymlinks(base)
	must(err)
	f := &fuzzer{t: t, world: newWorld(base), backend: name}
	must(f.world.reset())
	f.self, err = os.Executable()
	must(err)
	f.registry, err = cloche.DefaultRegistry(policy.Backend{})
	must(err)
	f.snapshot, err = machine.Collect(f.world.ws)
	must(err)
	own := base + "/own"
	f.snapshot.Home, f.snapshot.Environ = f.world.home, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.world.home}
	f.snapshot.Dirs = host.Dirs{Config: own + "/config", Data: own + "/data", State: own + "/state", Cache: own + "/cache"}
	return f
}

// each runs cases by their numbers: the one that the environment names, new ones for as long as it
// says, or else a few that are always the same, so that a failure is a change's own.
func (f *fuzzer) each(few uint64, run func(seed uint64)) {
	f.t.Helper()
	if text := os.Getenv("CLOCHE_DIFF_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			f.t.Fatal(err)
		}
		f.verbose = true
		run(seed)
		return
	}
	first, last, end := uint64(1), few, time.Now().Add(time.Hour)
	if limit := duration(f.t); limit > 0 {
		first, last, end = rand.Uint64()>>16, math.MaxUint64, time.Now().Add(limit/time.Duration(len(backends)))
	}
	seed := first
	for ; seed <= last && time.Now().Before(end) && len(f.found) < 8; seed++ {
		run(seed)
	}
	f.t.Logf("%s: seeds %d to %d", f.backend, first, seed-1)
	for _, text := range f.found {
		f.t.Error(text)
	}
	if f.cases == 0 {
		f.t.Error("no case was run")
	}
}

// A layer is one document of a policy.
type layer struct {
	Layer     policy.Layer
	Untrusted bool
	Doc       document
	Text      string // instead of Doc
}

func (l *layer) text() ([]byte, error) {
	if l.Text != "" {
		return []byte(l.Text), nil
	}
	return json.Marshal(l.Doc)
}

// A document is the part of a policy file that cases use.
type document struct {
	Version int                 `json:"version"`
	Presets *[]string           `json:"presets,omitempty"`
	Reads   string              `json:"reads,omitempty"`
	Tmp     string              `json:"tmp,omitempty"`
	Remap   string              `json:"remap,omitempty"`
	Paths   map[string][]string `json:"paths,omitempty"`
	Binds   []map[string]any    `json:"binds,omitempty"`
	Persist []string            `json:"persist,omitempty"`
}

func (f *fuzzer) report(seed uint64, layers []layer, format string, args ...any) {
	text := fmt.Sprintf("seed %d: ", seed) + fmt.Sprintf(format, args...)
	for _, l := range layers {
		doc, _ := json.Marshal(l.Doc)
		text += fmt.Sprintf("\n    %s untrusted=%v %s", l.Layer, l.Untrusted, doc)
	}
	f.found = append(f.found, text)
	if f.verbose {
		f.t.Error(text)
	}
}

// run makes the case of a number and runs it.
func (f *fuzzer) run(seed uint64) {
	f.reset() // what the last case left behind is no part of this one
	r := rand.New(rand.NewPCG(seed, 1))
	layers := f.layers(r)
	ops := f.operations(r, layers)
	s, results, err := f.try(layers, ops)
	if err != nil {
		f.refused++
		if f.verbose {
			f.t.Logf("refused: %v", err)
			f.report(seed, layers, "refused")
		}
		return
	}
	defer s.Close()
	f.cases++
	f.ops += len(ops)
	var refused []int
	for i, o := range ops {
		ok := results.ok[i]
		d := results.checks[i]
		soft := d.Allowed && (o.Do == "rename" || o.Do == "unlink") // a place that is pinned cannot be moved
		if f.verbose {
			f.t.Logf("%v: %v, check %v (%s), %v", o, ok, d.Allowed, d.Rule, results.attempts[i])
		}
		if ok != d.Allowed && !soft {
			f.report(seed, layers, "%v: succeeded %v, check says %v: %s (%s); %v", o, ok, d.Allowed, d.Rule, d.Origin, results.attempts[i])
		}
		if !ok && !d.Allowed {
			refused = append(refused, i)
		}
	}
	f.agree(seed, r, layers, ops, results, s)
	if len(refused) > 0 {
		i := refused[r.IntN(len(refused))]
		if do := ops[i].Do; do != "rename" && do != "unlink" { // check is not asked about these
			f.suggestion(seed, layers, ops[i], results.checks[i].Fix, "")
		}
		i = refused[r.IntN(len(refused))]
		fix, at := results.told(ops[i])
		if file, shown := explained(s).HostPath(at); shown && file == realPath(ops[i].Path) {
			at = "" // the option has to open that file
		}
		f.suggestion(seed, layers, ops[i], fix, at)
	}
	f.withoutUntrusted(seed, layers, ops, results)
	if f.instead == nil && r.IntN(12) == 0 {
		f.verify(seed, layers, ops, results, s)
	}
}

// results are how the operations of a case went.
type results struct {
	attempts [][]attempt
	ok       []bool
	checks   []plan.Decision
	denied   []plan.Denial
}

// reset makes the tree as it was.
func (f *fuzzer) reset() {
	if err := f.world.reset(); err != nil {
		f.t.Fatal(err)
	}
}

// policy merges the layers.
func (f *fuzzer) policy(layers []layer) (policy.Policy, error) {
	var all []policy.Layered
	for _, l := range layers {
		text, err := l.text()
		if err != nil {
			return policy.Policy{}, err
		}
		doc, err := policy.ParseIn(l.Layer.String()+".yaml", f.world.ws, text)
		if err != nil {
			return policy.Policy{}, err
		}
		all = append(all, policy.Layered{Doc: doc, Layer: l.Layer, Untrusted: l.Untrusted})
	}
	p, _, err := policy.Merge(all...)
	return p.With(policy.WithBackend(f.backend), policy.WithNetwork(policy.NetworkNone)), err
}

func (f *fuzzer) open(p policy.Policy) (*cloche.Session, error) {
	snap := *f.snapshot
	return cloche.Open(context.Background(), p, cloche.WithRegistry(f.registry), cloche.WithWorkspace(f.world.ws), cloche.WithHost(&snap))
}

// try makes the sandbox and tries the operations in it.
func (f *fuzzer) try(layers []layer, ops []op) (*cloche.Session, *results, error) {
	f.reset()
	p, err := f.policy(layers)
	if err != nil {
		return nil, nil, err
	}
	s, err := f.open(p)
	if err != nil {
		return nil, nil, err
	}
	res := &results{}
	for i, o := range ops {
		var st unix.Stat_t
		if o.Do != "create" && o.Do != "mkdir" && unix.Stat(o.Path, &st) == nil {
			ops[i].dev, ops[i].ino = st.Dev, st.Ino
		}
		d, err := s.Check(o.action(), o.Path)
		if err != nil {
			s.Close()
			return nil, nil, err
		}
		res.checks = append(res.checks, d)
	}
	enforced := s
	if f.instead != nil {
		if enforced, err = f.open(f.instead(p)); err != nil {
			s.Close()
			return nil, nil, err
		}
		defer enforced.Close()
	}
	text, err := json.Marshal(ops)
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := enforced.Command(context.Background(), f.self, workerWord, string(text)).Capture()
	var exit *cloche.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Close()
		return nil, nil, err
	}
	if err := json.NewDecoder(bytes.NewReader(out.Stdout)).Decode(&res.attempts); err != nil {
		s.Close()
		return nil, nil, fmt.Errorf("%w: %s", err, out.Stderr)
	}
	res.denied = out.Denied
	for i, o := range ops {
		res.ok = append(res.ok, succeeded(o, res.attempts[i]))
	}
	return s, res, nil
}

// told is the fix that the command got when it was refused an operation, and
// the path that it was about.
func (r *results) told(o op) (fix []policy.Edit, at string) {
	for i := range r.denied {
		if d := &r.denied[i]; slices.Contains(o.Ways, d.Path) && recorded[o.Do] == d.Op {
			return d.Fix, d.Path
		}
	}
	return nil, ""
}

// recorded is what refused operations are called.
var recorded = map[string]plan.Op{
	"read": plan.OpRead, "write": plan.OpWrite, "create": plan.OpCreate, "mkdir": plan.OpMkdir, "exec": plan.OpExec, "rename": plan.OpRename, "unlink": plan.OpUnlink,
}

// suggestion tries an operation again with a suggested fix. Where nothing of the host was
// shown at the path, the fix may show another file there.
func (f *fuzzer) suggestion(seed uint64, layers []layer, o op, fix []policy.Edit, at string) {
	if len(fix) != 1 || fix[0].Field != "paths.read" && fix[0].Field != "paths.write" {
		return
	}
	f.grants++
	kind := strings.TrimPrefix(string(fix[0].Field), "paths.")
	more := slices.Clone(layers)
	i := slices.IndexFunc(more, func(l layer) bool { return l.Layer == policy.LayerCommand })
	doc := more[i].Doc
	doc.Paths = maps.Clone(doc.Paths)
	if doc.Paths == nil {
		doc.Paths = map[string][]string{}
	}
	doc.Paths[kind] = append(slices.Clone(doc.Paths[kind]), fix[0].Entry())
	more[i].Doc = doc
	again, res, err := f.try(more, []op{o})
	if err != nil {
		f.report(seed, layers, "%v: with the suggested %v: %v", o, fix, err)
		return
	}
	defer again.Close()
	way := slices.Index(o.Ways, at)
	if !res.ok[0] && !helped(res.attempts[0], way) {
		f.report(seed, layers, "%v: the suggested %v for %q does not help: %v; now %s (%s)", o, fix, at, res.attempts[0], res.checks[0].Rule, res.checks[0].Origin)
	}
}

// helped reports whether the attempt of a way succeeded, or found what one by another way
// had just made.
func helped(attempts []attempt, way int) bool {
	if way < 0 || way >= len(attempts) {
		return false
	}
	made := slices.ContainsFunc(attempts, func(a attempt) bool { return a.Errno == 0 })
	return attempts[way].Errno == 0 || made && attempts[way].Errno == unix.EEXIST
}

// withoutUntrusted compares with the same policy without the untrusted file.
func (f *fuzzer) withoutUntrusted(seed uint64, layers []layer, ops []op, with *results) {
	trusted := slices.DeleteFunc(slices.Clone(layers), func(l layer) bool { return l.Untrusted })
	if len(trusted) == len(layers) {
		return
	}
	f.untrusted++
	s, without, err := f.try(trusted, ops)
	if err != nil {
		return // the working directory may not be visible, for instance
	}
	defer s.Close()
	for i, o := range ops {
		if with.ok[i] && !without.ok[i] {
			f.report(seed, layers, "%v: succeeds only with the untrusted file: %v, without %v", o, with.attempts[i], without.attempts[i])
		}
	}
}

// verify compares what verify says with what happened.
func (f *fuzzer) verify(seed uint64, layers []layer, ops []op, res *results, s *cloche.Session) {
	f.reset()
	v, err := s.Verify(context.Background(), f.self, proberWord)
	if err != nil {
		f.report(seed, layers, "verify: %v", err)
		return
	}
	f.verified++
	p := explained(s)
	files := judge.NewFiles(p)
	for _, finding := range v.Findings {
		if finding.Outcome == cloche.OutcomeNotHeld {
			f.report(seed, layers, "verify: %s %s is not held: %s", finding.Rule, finding.Subject, finding.Detail)
		}
		for i, o := range ops {
			if finding.Outcome != cloche.OutcomeHeld || !res.ok[i] && !res.checks[i].Allowed {
				continue
			}
			said, _ := files.HostPath(p, realPath(o.Path))
			if said.Rule == finding.Rule && said.Subject == finding.Subject && said.Access < needs(o) {
				f.report(seed, layers, "verify: %s %s is held, but %v succeeded, and check says %v", finding.Rule, finding.Subject, o, res.checks[i].Allowed)
			}
		}
	}
}

func needs(o op) policy.Access {
	if o.action() == plan.OpWrite {
		return policy.Write
	}
	return policy.Read
}

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// pick returns one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// layers makes the documents of a policy. The command's comes last.
func (f *fuzzer) layers(r *rand.Rand) []layer {
	base := document{Version: 1, Presets: &[]string{}, Reads: pick(r, "host", "host", "system"), Tmp: pick(r, "shared", "private")}
	if r.IntN(2) == 0 {
		base.Presets = &[]string{pick(r, "workspace", "readonly", "secrets", "strict")}
	}
	f.rules(r, &base, r.IntN(4))
	if r.IntN(4) > 0 {
		base.add("write", f.world.ws)
	}
	list := []layer{{Layer: policy.LayerUser, Doc: base}}
	if r.IntN(2) == 0 {
		l := layer{Layer: policy.LayerProject, Untrusted: r.IntN(3) > 0, Doc: document{Version: 1}}
		f.rules(r, &l.Doc, 1+r.IntN(4))
		if r.IntN(4) == 0 {
			l.Doc.Presets = &[]string{pick(r, "readonly", "workspace", "secrets")}
		}
		list = append(list, l)
	}
	l := layer{Layer: policy.LayerCommand, Doc: document{Version: 1}}
	f.rules(r, &l.Doc, r.IntN(4))
	return append(list, l)
}

func (d *document) add(kind, path string) {
	if d.Paths == nil {
		d.Paths = map[string][]string{}
	}
	d.Paths[kind] = append(d.Paths[kind], path)
}

var patterns = []string{"**/*.toml", "**/sub", "**/f", "**/.envrc", "**/prog", "WS/a/*", "WS/**/h", "**/deep/er"}

// rules adds rules to a document.
func (f *fuzzer) rules(r *rand.Rand, d *document, n int) {
	for range n {
		path := f.path(r)
		switch k := r.IntN(20); {
		case k < 5:
			d.add("write", path)
		case k < 8:
			d.add("read", path)
		case k < 11:
			d.add("hide", path)
		case k < 13:
			d.add("protect", path)
		case k < 15:
			d.add(pick(r, "hide", "protect"), strings.ReplaceAll(pick(r, patterns...), "WS", f.world.ws))
		case k < 17:
			target := pick(r, "/opt/x", f.world.ws+"/made", f.world.ws+"/a", f.world.base+"/out/made", f.path(r))
			d.Binds = append(d.Binds, map[string]any{"source": strings.TrimPrefix(path, "?"), "target": strings.TrimPrefix(target, "?"), "read_only": r.IntN(2) == 0, "optional": true})
		case k < 18:
			d.Persist = append(d.Persist, pick(r, f.world.ws+"/a", f.world.ws+"/p", f.world.ws+"/b/deep", f.world.home+"/x"))
		case k < 19:
			d.Remap = pick(r, "/workspace", "/opt/ws")
		}
	}
}

// path is one of the tree, or one that is missing.
func (f *fuzzer) path(r *rand.Rand) string {
	switch r.IntN(10) {
	case 0:
		return "?" + pick(r, f.world.names(true)...) + "/new"
	case 1, 2, 3, 4:
		return pick(r, f.world.names(true)...)
	}
	return pick(r, f.world.names(false)...)
}

// operations makes a list of them, with what changes the tree last.
func (f *fuzzer) operations(r *rand.Rand, layers []layer) []op {
	var ops []op
	add := func(do, path string) { ops = append(ops, op{Do: do, Path: path, Ways: f.ways(layers, path)}) }
	for range 10 {
		file, dir := pick(r, f.world.names(false)...), pick(r, f.world.names(true)...)
		switch r.IntN(5) {
		case 0:
			add("read", file)
		case 1:
			add("write", file)
		case 2:
			add("list", dir)
		case 3:
			add("exec", pick(r, f.world.ws+"/prog", f.world.ws+"/a/sub/prog"))
		case 4:
			add("write", pick(r, "/dev/null", "/dev/zero", file))
		}
	}
	for i := range 3 {
		add(pick(r, "create", "mkdir"), fmt.Sprintf("%s/new%s%d", pick(r, f.world.names(true)...), pick(r, "", ".toml"), i))
	}
	isLink := func(p string) bool { return filepath.Base(p)[0] == 'l' } // check is about what links lead to
	for _, do := range []string{"rename", "unlink"} {
		add(do, pick(r, slices.DeleteFunc(f.world.names(false), isLink)...))
	}
	return ops
}

// remapOf is where the layers put the workspace, empty for its own place.
func remapOf(layers []layer) (remap string) {
	for _, l := range layers {
		if !l.Untrusted {
			remap = cmp.Or(l.Doc.Remap, remap)
		}
	}
	return remap
}

// ways are the paths inside that may lead to a path of the host.
func (f *fuzzer) ways(layers []layer, path string) []string {
	ways := []string{path}
	real := realPath(path)
	if real != path {
		ways = append(ways, real)
	}
	remap := remapOf(layers)
	if rest, ok := strings.CutPrefix(real, f.world.ws); ok && remap != "" {
		ways = append(ways, remap+rest)
	}
	for _, l := range layers {
		for _, b := range l.Doc.Binds {
			source := b["source"].(string)
			if whole, err := filepath.EvalSymlinks(source); err == nil {
				source = whole
			}
			if rest, ok := strings.CutPrefix(real, source); ok && (rest == "" || rest[0] == '/') {
				target := b["target"].(string) + rest
				ways = append(ways, target)
				if below, ok := strings.CutPrefix(target, f.world.ws); ok && remap != "" {
					ways = append(ways, remap+below)
				}
			}
		}
	}
	return ways
}
