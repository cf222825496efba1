package verify

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A lab is a plan over folders of the test, and a run of it.
type lab struct {
	t              *testing.T
	ro, ws, secret string
	run            *Run
}

func newLab(t *testing.T, gaps ...backend.Gap) *lab {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, ro: filepath.Join(dir, "ro"), ws: filepath.Join(dir, "ws")}
	l.secret = filepath.Join(l.ws, "secret")
	for _, d := range []string{l.ro, l.ws} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(l.secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Workspace: l.ws, Inside: l.ws, Paths: []plan.Path{
		{Path: l.ro, Source: l.ro, Kind: hostfs.Dir, Access: policy.Read},
		{Path: l.ws, Source: l.ws, Kind: hostfs.Dir, Access: policy.Write},
		{Path: l.ws + "/absent", Source: l.ws + "/absent", Kind: hostfs.Missing, Access: policy.Read, Protect: true},
		{Path: l.secret, Kind: hostfs.File, Content: plan.Empty, Access: policy.Hidden},
	}, Globs: []plan.Glob{{Pattern: "/**/*.pem", Access: policy.Hidden}, {Pattern: "/**/.envrc", Access: policy.Read}}}
	if l.run, err = Prepare(p, &backend.Launch{Backend: "test", Confined: true, Gaps: gaps}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// close ends the run, of which nothing may be left.
func (l *lab) close() {
	l.t.Helper()
	if err := l.run.Close(); err != nil {
		l.t.Error(err)
	}
	for dir, want := range map[string][]string{l.ro: nil, l.ws: {"secret"}} {
		var names []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if !slices.Equal(names, want) {
			l.t.Errorf("%s holds %q after the run, want %q", dir, names, want)
		}
	}
}

// request is the input of the prober.
func (l *lab) request() []attempt {
	l.t.Helper()
	input, err := l.run.Input()
	if err != nil {
		l.t.Fatal(err)
	}
	var req []attempt
	if err := json.Unmarshal(input, &req); err != nil {
		l.t.Fatal(err)
	}
	return req
}

// findings are what comes of a prober that says what answer says.
func (l *lab) findings(answer func(attempt) answer) map[string]Finding {
	l.t.Helper()
	var answers []any
	for _, a := range l.request() {
		answers = append(answers, answer(a))
	}
	output, err := json.Marshal(answers)
	if err != nil {
		l.t.Fatal(err)
	}
	list, err := l.run.Findings(output)
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]Finding{}
	for _, f := range list {
		if old, seen := out[f.Rule+" "+f.Subject]; !seen || old.Outcome != NotHeld {
			out[f.Rule+" "+f.Subject] = f
		}
	}
	return out
}

// expect compares the outcome of one rule.
func (l *lab) expect(found map[string]Finding, rule string, want Outcome) {
	l.t.Helper()
	if f, ok := found[rule]; !ok || f.Outcome != want {
		l.t.Errorf("%s: %q (%s), want %q", rule, f.Outcome, f.Detail, want)
	}
}

// bare is a prober with no sandbox around it. It does not type into the terminal
// that the test may have.
func (l *lab) bare() func(attempt) answer {
	return func(a attempt) answer {
		if a.Do == "inject" {
			return answer{Errno: unix.ENOTTY}
		}
		return prober.Try(a, nil)
	}
}

func refuseAll(attempt) answer { return answer{Errno: unix.EACCES} }

// N7: where everything is refused, what is to be refused is held, and what is to
// work is not.
func TestAllRefused(t *testing.T) {
	l := newLab(t)
	found := l.findings(refuseAll)
	for rule, want := range map[string]Outcome{
		"paths.hide " + l.secret:            Held,
		"paths.protect " + l.ws + "/absent": Held,
		"paths.hide /**/*.pem":              Held,
		"paths.protect /**/.envrc":          Held,
		"network.mode none":                 Held,
		"system calls mounting":             Held,
		"paths.write " + l.ws:               NotHeld,
		"paths.read " + l.ro:                NotHeld,
		"privileges no_new_privs":           NotHeld,
		"system calls filter":               NotHeld,
	} {
		l.expect(found, rule, want)
	}
}

// N7: a prober without any sandbox around it finds the rules broken that
// do not depend on what else confines the test.
func TestUnconfinedProber(t *testing.T) {
	l := newLab(t)
	found := l.findings(l.bare())
	for rule, want := range map[string]Outcome{
		"paths.write " + l.ws:                        Held,
		"paths.read " + l.ro:                         NotHeld,
		"paths.hide " + l.secret:                     NotHeld,
		"paths.protect " + l.ws + "/absent":          NotHeld,
		"paths.hide /**/*.pem":                       NotHeld,
		"paths.protect /**/.envrc":                   NotHeld,
		"network.mode none":                          NotHeld,
		"env all others":                             NotHeld,
		"processes seeing processes of the host":     NotHeld,
		"processes signalling processes of the host": NotHeld,
		"system calls setuid files":                  NotHeld,
	} {
		l.expect(found, rule, want)
	}
	if data, err := os.ReadFile(l.secret); err != nil || string(data) != "secret" {
		t.Errorf("the secret is %q (%v) after the run", data, err)
	}
}

// N7: a prober that does things and calls them refused is not believed.
func TestLyingProber(t *testing.T) {
	l := newLab(t)
	try := l.bare()
	found := l.findings(func(a attempt) answer {
		try(a)
		return refuseAll(a)
	})
	for _, rule := range []string{"paths.read " + l.ro, "paths.protect " + l.ws + "/absent", "paths.protect /**/.envrc", "network.mode none", "system calls setuid files"} {
		l.expect(found, rule, NotHeld)
	}
	// Nor one that only says that a write worked.
	l = newLab(t)
	found = l.findings(func(attempt) answer { return answer{} })
	l.expect(found, "paths.write "+l.ws, NotHeld)
}

// N4 N7: what the backend says it does not hold is a gap, and is not moved about.
func TestDeclaredGap(t *testing.T) {
	l := newLab(t, backend.Gap{Rule: "paths.hide", Reason: "no masks"}, backend.Gap{Rule: "sockets.later", Subject: "sockets made later", Reason: "no broker"})
	for _, a := range l.request() {
		if a.Do == "move" {
			t.Errorf("%s would be moved, although it is known that it can be", a.Path)
		}
	}
	found := l.findings(l.bare())
	l.expect(found, "paths.hide "+l.secret, Gap)
	l.expect(found, "paths.hide /**/*.pem", Gap)
	l.expect(found, "paths.protect /**/.envrc", NotHeld)
	// What nothing tries is reported, too, and what was met is not repeated.
	l.expect(found, "sockets.later sockets made later", Gap)
	if f, ok := found["paths.hide "]; ok {
		t.Errorf("a gap that was met is reported once more: %+v", f)
	}
}

// N7: what a prober moved away and, being killed, did not move back is back.
func TestMovedBack(t *testing.T) {
	l := newLab(t)
	for _, a := range l.request() {
		if a.Do == "move" {
			if err := os.Rename(string(a.Path), string(a.To)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := os.Stat(l.secret); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("nothing was moved: %v", err)
	}
	if err := l.run.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.secret); err != nil {
		t.Errorf("the file is not back: %v", err)
	}
}

// N7: no sandbox, nothing to verify; no answers, no findings.
func TestErrors(t *testing.T) {
	if _, err := Prepare(&plan.Plan{}, &backend.Launch{}); !errors.Is(err, ErrUnconfined) {
		t.Errorf("without a sandbox: %v", err)
	}
	l := newLab(t)
	for _, output := range []string{"", "[]", "hello", "{}"} {
		if found, err := l.run.Findings([]byte(output)); err == nil {
			t.Errorf("output %q gives %v", output, found)
		}
	}
}
