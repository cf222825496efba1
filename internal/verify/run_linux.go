package verify

import (
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
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Run is the outside of one verification: what is tried, what the host has
// ready for it, and what has to be removed afterwards.
type Run struct {
	plan   *plan.Plan
	launch *backend.Launch
	judge  *plan.Judge
	token  string
	checks []check
	// traces are paths of the host that an attempt may make, parents first.
	traces []string
	// moves are files of the host and where an attempt may move them.
	moves [][2]string
	// patience is when the host stops to wait for messages.
	patience time.Time
	cleanups []func()
}

// Prepare decides what to try of a plan and makes the host ready. The caller
// closes the run, whatever comes of it.
func Prepare(p *plan.Plan, l *backend.Launch) (*Run, error) {
	if !l.Confined {
		return nil, ErrUnconfined
	}
	r := &Run{plan: p, launch: l, judge: p.Judge(), token: strings.ToLower(rand.Text()[:12])}
	r.lines()
	r.patterns()
	r.network()
	r.environment()
	r.limits()
	r.privileges()
	r.processes()
	r.ipc()
	// Last: what could be moved away might be missed by another attempt.
	r.pins()
	return r, nil
}

func (r *Run) add(c check) { r.checks = append(r.checks, c) }

// Input is what the prober has to read from its standard input.
func (r *Run) Input() ([]byte, error) {
	req := request{Token: r.token}
	for _, c := range r.checks {
		req.Attempts = append(req.Attempts, c.attempts...)
	}
	return json.Marshal(req)
}

// Findings judges what the prober printed.
func (r *Run) Findings(output []byte) ([]Finding, error) {
	var answers []answer
	if err := json.Unmarshal(output, &answers); err != nil {
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
	return append(findings, declaredGaps(r.launch.Gaps, met)...), nil
}

// declaredGaps are the gaps that no attempt met: each run reports them, and so does
// verify.
func declaredGaps(gaps []backend.Gap, met []bool) []Finding {
	var out []Finding
	for i, g := range gaps {
		if !met[i] {
			out = append(out, Finding{Rule: g.Rule, Subject: g.Subject, Outcome: Gap, Origin: g.Origin,
				Detail: "it was not tried; not held by this backend: " + g.Reason})
		}
	}
	return out
}

// Close removes all that the run made on the host. It moves back what a prober
// that was killed could not move back itself.
func (r *Run) Close() error {
	for _, f := range r.cleanups {
		f()
	}
	r.cleanups = nil
	var errs []error
	for _, m := range r.moves {
		if appeared(m[1]) {
			errs = append(errs, moveBack(m[1], m[0]))
		}
	}
	// A folder that somebody else has put something into since stays.
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

func moveBack(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("%s could be moved to %s, and not back: %w; move it back", to, from, err)
	}
	return nil
}

// trace notes a path of the host that an attempt may make, with the folders on
// its way that do not exist. Whatever exists already is not ours to remove.
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

// appeared reports whether the host has a file of this run's.
func appeared(p string) bool {
	_, err := os.Lstat(p)
	return p != "" && err == nil
}

// may reports whether the caller itself may use a path of the host: what it may
// not, no sandbox could show.
func may(p string, mode uint32) bool {
	return unix.Faccessat(unix.AT_FDCWD, p, mode, unix.AT_EACCESS) == nil
}

// hostPath is the host's path of what a line shows or hides.
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

// inWritable reports whether a line lies in a folder of the host that can be
// written, where it could be moved away.
func (r *Run) inWritable(p string) bool {
	if p == "/" {
		return false
	}
	around := r.plan.Lookup(path.Dir(p))
	return around.Access == policy.Write && around.Content == plan.Host
}

// newName is a name in a folder that no pattern speaks about.
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

// writableRoots are the lines that show writable folders of the host.
func (r *Run) writableRoots() []plan.Path {
	var out []plan.Path
	for _, e := range r.plan.Paths {
		if e.Access == policy.Write && e.Content == plan.Host && e.Kind == host.Dir {
			out = append(out, e)
		}
	}
	return out
}
