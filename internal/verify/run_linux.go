package verify

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

type (
	attempt = prober.Attempt
	answer  = prober.Answer
)

// A Run is the part of a verification that runs outside: the checks, the preparations
// on the host, and what has to be removed afterwards.
type Run struct {
	plan   *plan.Plan
	launch *backend.Launch
	judge  *judge.Files
	token  string
	checks []check
	// traces are paths of the host that an attempt may create, parents first.
	traces []string
	// moves are paths of the host, each with the path to which an attempt may move it.
	moves [][2]string
	// patience is the time until which the host waits for messages.
	patience time.Time
	cleanups []func()
}

// Prepare decides what to try, and prepares the host. The caller has to close the run
// even if the verification fails.
func Prepare(p *plan.Plan, l *backend.Launch) (*Run, error) {
	if !l.Confined {
		return nil, ErrUnconfined
	}
	r := &Run{plan: p, launch: l, judge: judge.NewFiles(p), token: strings.ToLower(rand.Text()[:12])}
	r.lines()
	r.patterns()
	r.network()
	r.environment()
	r.limits()
	r.privileges()
	r.processes()
	r.ipc()
	// Last: a path that can be moved away may be missing for another attempt.
	r.pins()
	return r, nil
}

func (r *Run) add(c check) { r.checks = append(r.checks, c) }

// Input returns the input of the prober.
func (r *Run) Input() ([]byte, error) {
	attempts := []attempt{}
	for _, c := range r.checks {
		attempts = append(attempts, c.attempts...)
	}
	return json.Marshal(attempts)
}

// Findings evaluates the output of the prober.
func (r *Run) Findings(output []byte) ([]Finding, error) {
	var answers []answer
	decoder := json.NewDecoder(bytes.NewReader(output))
	decoder.DisallowUnknownFields() // a program that repeats its input is no prober
	if err := decoder.Decode(&answers); err != nil {
		return nil, fmt.Errorf("the prober's answers cannot be read: %w; is its program one that calls RunProber?", err)
	}
	want := 0
	for _, c := range r.checks {
		want += len(c.attempts)
	}
	if len(answers) != want {
		return nil, fmt.Errorf("the prober gave %d answers to %d attempts; is it of this version of cloche?", len(answers), want)
	}
	findings := make([]Finding, len(r.checks))
	met := make([]bool, len(r.launch.Gaps))
	for i := range r.checks {
		c := &r.checks[i]
		n := len(c.attempts)
		findings[i] = c.finding(answers[:n:n], r.launch.Gaps, met)
		answers = answers[n:]
	}
	// Gaps that no failed attempt met are reported too, as in each run.
	for i, g := range r.launch.Gaps {
		if !met[i] {
			findings = append(findings, Finding{Rule: g.Rule, Subject: g.Subject, Outcome: Gap, Origin: g.Origin,
				Detail: "it was not tried; not held by this backend: " + g.Reason})
		}
	}
	return findings, nil
}

// Close removes everything that the run created on the host. It moves back files that a
// killed prober could not move back.
func (r *Run) Close() error {
	for _, f := range r.cleanups {
		f()
	}
	r.cleanups = nil
	var errs []error
	for _, m := range r.moves {
		if appeared(m[1]) {
			if err := unix.Renameat2(unix.AT_FDCWD, m[1], unix.AT_FDCWD, m[0], unix.RENAME_NOREPLACE); err != nil {
				errs = append(errs, fmt.Errorf("%s could be moved to %s, and not back: %w; move it back", m[0], m[1], err))
			}
		}
	}
	// A folder into which somebody else has put something stays, and is reported.
	for i := len(r.traces) - 1; i >= 0; i-- {
		if !appeared(r.traces[i]) {
			continue
		}
		if err := os.Remove(r.traces[i]); err != nil {
			errs = append(errs, fmt.Errorf("what was tried left something behind: %w; remove it", err))
		}
	}
	return errors.Join(errs...)
}

// trace remembers a path of the host that an attempt may create, with the folders above
// it that do not exist. Paths that exist already are never removed.
func (r *Run) trace(p string) {
	if p == "" || p == "/" || exists(p) || slices.Contains(r.traces, p) {
		return
	}
	r.trace(path.Dir(p))
	r.traces = append(r.traces, p)
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
}

// appeared reports whether a path exists on the host.
func appeared(p string) bool {
	_, err := os.Lstat(p)
	return p != "" && err == nil
}

// may reports whether the caller may use a path of the host. A sandbox cannot show more
// than that.
func may(p string, mode uint32) bool {
	return unix.Faccessat(unix.AT_FDCWD, p, mode, unix.AT_EACCESS) == nil
}

// hostPath returns the path of the host that a line shows or hides.
func (r *Run) hostPath(e plan.Path) string {
	if e.Content == plan.Host && e.Source != "" {
		return e.Source
	}
	if e.Path == "/" {
		return "/"
	}
	around := r.plan.Lookup(path.Dir(e.Path))
	if around.Content == plan.Host && around.Source != "" {
		return pathx.Rebase(around.Path, around.Source, e.Path)
	}
	return e.Path
}

// inWritable reports whether a path is in a writable folder of the host, so that it
// could be moved away.
func (r *Run) inWritable(p string) bool {
	if p == "/" {
		return false
	}
	around := r.plan.Lookup(path.Dir(p))
	return around.Access == policy.Write && around.Content == plan.Host
}

// newName returns a new name in a folder that no pattern makes stricter.
func (r *Run) newName(dir string) (string, bool) {
	around := r.judge.Path(dir)
	for _, name := range []string{folderName(r.token), fileName(r.token), r.token} {
		p := path.Join(dir, name+"-new")
		if v := r.judge.Path(p); v.Access == around.Access {
			return p, true
		}
	}
	return "", false
}

// writableRoots returns the lines that show writable folders of the host.
func (r *Run) writableRoots() []plan.Path {
	var out []plan.Path
	for _, e := range r.plan.Paths {
		if e.Access == policy.Write && e.Content == plan.Host && e.Kind == hostfs.Dir {
			out = append(out, e)
		}
	}
	return out
}

// A check is one rule, the attempts to break it, and a function that judges the
// answers.
type check struct {
	// rules are the rules that the check is about. A gap of the backend in one of them
	// excuses a failure. The first one is reported.
	rules   []string
	subject string
	// place is another path inside at which the subject is seen. A gap may name either.
	place    string
	origin   policy.Origin
	attempts []attempt
	judge    func([]answer) verdict
}

// The attempts that most checks make.

func on(do, path string) attempt { return attempt{Do: do, Path: prober.Text(path)} }

// read returns an attempt to read a file or to list a folder. Content leaves the sandbox
// only as a hash.
func (r *Run) read(path string) attempt {
	return attempt{Do: "hash", Path: prober.Text(path), Data: prober.Text(r.token)}
}

func openWith(path string, flags int) attempt {
	return attempt{Do: "open", Path: prober.Text(path), N: int64(flags), M: 0o600}
}

func write(path string) attempt  { return openWith(path, unix.O_WRONLY) }
func create(path string) attempt { return openWith(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) }

// A verdict is the result of a check.
type verdict struct {
	outcome Outcome
	detail  string
}

func held(format string, args ...any) verdict { return verdict{Held, fmt.Sprintf(format, args...)} }
func broken(format string, args ...any) verdict {
	return verdict{NotHeld, fmt.Sprintf(format, args...)}
}
func untested(format string, args ...any) verdict {
	return verdict{NotTestable, fmt.Sprintf(format, args...)}
}

// untestable turns the check into one that cannot be tried here, with the reason.
func (c check) untestable(format string, args ...any) check {
	c.attempts = nil
	c.judge = func([]answer) verdict { return verdict{NotTestable, fmt.Sprintf(format, args...)} }
	return c
}

// finding judges the answers. A failure for which the backend declares a gap is
// reported as that gap, and the gap is marked in met.
func (c *check) finding(answers []answer, gaps []backend.Gap, met []bool) Finding {
	v := c.judge(answers)
	f := Finding{Rule: c.rules[0], Subject: c.subject, Outcome: v.outcome, Detail: v.detail, Origin: c.origin}
	if v.outcome != NotHeld {
		return f
	}
	for i := range gaps {
		if !c.in(&gaps[i]) {
			continue
		}
		met[i] = true
		if f.Outcome != Gap {
			f.Outcome = Gap
			f.Detail += "; not held by this backend: " + gaps[i].Reason
		}
	}
	return f
}

// in reports whether a gap excuses a failure of the check.
func (c *check) in(g *backend.Gap) bool {
	return slices.ContainsFunc(c.rules, func(rule string) bool {
		return (rule == g.Rule || strings.HasPrefix(rule, g.Rule+".")) && (concerns(g, c.subject) || c.place != "" && concerns(g, c.place))
	})
}

// concerns reports whether a gap includes the subject of a check. A gap may be about
// several subjects, or about all.
func concerns(g *backend.Gap, subject string) bool {
	subjects := g.Subjects
	if subjects == nil {
		subjects = strings.Split(g.Subject, ", ")
	}
	return slices.ContainsFunc(subjects, func(s string) bool {
		return s == "" || s == subject || strings.HasPrefix(s, "/") && pathx.Within(s, subject)
	})
}
