package difftest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// shortLearn is how many lessons each backend has if nobody says how long to go on.
const shortLearn = 25

// N6: what learn proposes for an operation agrees with check: nothing for what is allowed, a
// rule that works for what an option could open, and words for what nothing opens.
func TestLearn(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs)
			f := newFuzzer(t, b.name)
			f.each(shortLearn, f.learn)
			t.Logf("%s: %d lessons: %d allowed, %d opened and tried, %d left out", b.name, f.cases, f.nothing, f.learned, f.left)
		})
	}
}

// A lesson is what cloche learn says of one operation.
type lesson struct {
	text string // of the policy
	said string
	// rules is the number of rules for paths in it, left has the lines of what is not opened.
	rules []policy.PathRule
	left  []string
}

// learn makes the case of a number and has one of its operations learned.
func (f *fuzzer) learn(seed uint64) {
	f.reset() // what the last case left behind is no part of this one
	r := rand.New(rand.NewPCG(seed, 2))
	layers := f.layers(r)
	ops := f.operations(r, layers)
	all := r.IntN(2) == 0 // what is sensitive, too
	o, d, known := f.choose(r, layers, ops)
	if !known {
		f.refused++
		return
	}
	s, _, err := f.try(layers, []op{o})
	if err != nil { // no command runs under this policy
		f.refused++
		return
	}
	s.Close()
	f.reset()
	l, err := f.teach(layers, o, all)
	if err != nil {
		f.report(seed, layers, "%v: learn: %v", o, err)
		return
	}
	f.cases++
	differs := func(format string, args ...any) {
		f.report(seed, layers, "%v (as %s, all %v): %s\ncheck: %v %s, fix %v\n%s\n%s", o, o.Ways[0], all, fmt.Sprintf(format, args...), d.Allowed, d.Because(), d.Fix, l.said, l.text)
	}
	if f.verbose {
		f.t.Logf("%v (as %s, all %v): check %v %s, fix %v\n%s\n%s", o, o.Ways[0], all, d.Allowed, d.Because(), d.Fix, l.said, l.text)
	}
	moves := o.Do == "rename" || o.Do == "unlink" // check is not asked about these
	switch {
	case d.Allowed && moves:
	case d.Allowed:
		f.nothing++
		if len(l.rules)+len(l.left) > 0 {
			differs("check allows it, and learn has something to open")
		}
	case len(l.rules) > 0 && !all && f.kept(layers, o):
		differs("a rule hides or protects it, and learn opens it without being asked to")
	case len(l.rules) > 0:
		f.learned++
		f.tryLearned(differs, layers, o, l)
	case len(l.left) == 0:
		differs("it is refused, and learn says nothing")
	case slices.ContainsFunc(l.left, func(line string) bool { return !strings.Contains(line, ": ") }):
		differs("learn does not say why it leaves something out")
	case all && len(d.Fix) > 0 && !moves && o.Ways[0] == f.ownPlace(layers, o): // elsewhere the option opens another place
		differs("an option opens it, and learn does not")
	default:
		f.left++
	}
}

// choose picks an operation, mostly one that check denies, and leaves it one way: that by which
// the sandbox has the file. known is false for a policy that is refused, and where the sandbox has
// something else under that name, of which no refusal is to be seen.
func (f *fuzzer) choose(r *rand.Rand, layers []layer, ops []op) (o op, d plan.Decision, known bool) {
	p, err := f.policy(layers)
	if err != nil {
		return o, d, false
	}
	s, err := f.open(p)
	if err != nil {
		return o, d, false
	}
	defer s.Close()
	wantAllowed := r.IntN(5) == 0
	for _, i := range r.Perm(len(ops)) {
		o = ops[i]
		if d, err = s.Check(o.action(), o.Path); err != nil || d.Allowed != wantAllowed {
			continue
		}
		real := realPath(o.Path)
		at := judge.OwnPlace(explained(s), real)
		places := judge.Places(explained(s), real)
		if len(places) > 1 && d.Allowed {
			continue // check means that one of the places is open, and the command would try another
		}
		if len(places) > 0 {
			at = places[0]
		} else if line := explained(s).Lookup(at); line.Access != policy.Hidden && !judge.HasDevice(&line, at) {
			continue
		}
		shows := func(e plan.Path) bool { return e.Access != policy.Hidden && e.Path != at && pathx.Within(at, e.Path) }
		if o.Do == "list" && !d.Allowed && slices.ContainsFunc(explained(s).Paths, shows) {
			continue // the folder is there for what it shows, and nobody sees that it is listed
		}
		o.Ways = []string{at}
		return o, d, true
	}
	return o, d, false
}

// kept reports whether a rule for a path hides what an operation is about, or protects what it
// changes. Such a rule may have had no part in the refusal, where everything is hidden.
func (f *fuzzer) kept(layers []layer, o op) bool {
	real := realPath(o.Path)
	around := func(path string) bool { return pathx.Within(realPath(strings.TrimPrefix(path, "?")), real) }
	return slices.ContainsFunc(layers, func(l layer) bool {
		return slices.ContainsFunc(l.Doc.Paths["hide"], around) || needs(o) == policy.Write && slices.ContainsFunc(l.Doc.Paths["protect"], around)
	})
}

// ownPlace is where the sandbox has the file of an operation under its own name.
func (f *fuzzer) ownPlace(layers []layer, o op) string {
	real := realPath(o.Path)
	if rest, in := strings.CutPrefix(real, f.world.ws); in {
		return cmp.Or(remapOf(layers), f.world.ws) + rest
	}
	return real
}

// teach runs cloche learn with the layers as its files.
func (f *fuzzer) teach(layers []layer, o op, all bool) (*lesson, error) {
	own := f.world.base + "/own"
	out := own + "/learned.yaml"
	args := []string{"learn", "--workspace", f.world.ws, "--backend", f.backend, "--net", "none", "--yes", "--force", "--output", out}
	if all {
		args = append(args, "--include", "/")
	}
	files := map[policy.Layer]string{policy.LayerUser: own + "/config/cloche/policy.yaml", policy.LayerProject: f.world.ws + "/.cloche.yaml", policy.LayerCommand: own + "/command.yaml"}
	for _, l := range layers {
		text, err := json.Marshal(l.Doc)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(files[l.Layer]), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(files[l.Layer], text, 0o600); err != nil {
			return nil, err
		}
		switch {
		case l.Layer == policy.LayerCommand:
			args = append(args, "--policy", files[l.Layer])
		case l.Layer == policy.LayerProject && !l.Untrusted:
			if _, err := config.OpenTrust(own + "/data/cloche").Trust(files[l.Layer]); err != nil {
				return nil, err
			}
		}
	}
	text, err := json.Marshal([]op{o})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(f.t.Context(), f.self, append(append([]string{clocheWord}, args...), "--", f.self, workerWord, string(text))...)
	cmd.Dir = f.world.ws
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.world.home, "XDG_CONFIG_HOME=" + own + "/config", "XDG_DATA_HOME=" + own + "/data", "XDG_STATE_HOME=" + own + "/state", "XDG_CACHE_HOME=" + own + "/cache"}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return readLesson(out, said.String())
}

func readLesson(file, said string) (*lesson, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	l := &lesson{text: string(text)}
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "cloche: learn: ") {
			l.said += line
		}
	}
	doc, err := policy.ParseIn(file, filepath.Dir(file), text)
	if err != nil {
		return nil, err
	}
	settings, err := doc.Settings()
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		if rule, ok := s.Value.(policy.PathRule); ok && (s.Field == "paths.write" || s.Field == "paths.read") {
			l.rules = append(l.rules, rule)
		}
	}
	if _, left, some := strings.Cut(l.text, "# Left out."); some {
		l.left = strings.Split(strings.TrimSpace(left), "\n")[1:]
	}
	return l, nil
}

// tryLearned tries an operation with the rules that were learned for it.
func (f *fuzzer) tryLearned(differs func(string, ...any), layers []layer, o op, l *lesson) {
	if o.Do == "mkdir" && slices.ContainsFunc(l.rules, func(e policy.PathRule) bool { return path.Base(e.Path) == path.Base(o.Path) }) {
		return // learn has made the folder, and it can be used
	}
	more := append(slices.Clone(layers), layer{Layer: policy.LayerCommand, Text: l.text})
	s, res, err := f.try(more, []op{o})
	if err != nil {
		differs("the policy with what was learned: %v", err)
		return
	}
	defer s.Close()
	if !res.ok[0] {
		differs("with what was learned it still fails: %v", res.attempts[0])
	}
	if !res.checks[0].Allowed {
		differs("with what was learned check says %s", res.checks[0].Because())
	}
}
