package cloche

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/backends/none"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A Decision says whether an action is allowed, and by which rule.
type Decision struct {
	Op      plan.Op `json:"action"`
	Target  string  `json:"target"`
	Allowed bool    `json:"allowed"`
	// Resolved is the target after its symbolic links.
	Resolved string `json:"resolved,omitempty"`
	Rule     string `json:"rule"`
	// Reason is why there is that rule, if it says so.
	Reason string        `json:"reason,omitempty"`
	Origin policy.Origin `json:"origin"`
	// Fix is what would allow it, as options of the command; empty where no option does.
	// Note is what has to be said beside it: what else it opens, or where the rule can be
	// changed.
	Fix  []policy.Edit `json:"fix,omitempty"`
	Note string        `json:"note,omitempty"`

	notWritable bool
}

// NotWritable reports whether a write is denied because no rule allows it. Rule is then
// the one that lets the path be read.
func (d *Decision) NotWritable() bool { return d.notWritable }

// Because is the rule in words, and where it comes from.
func (d *Decision) Because() string {
	s := d.Rule + ", from " + d.Origin.String()
	switch {
	case !d.notWritable:
		return s
	case d.Rule == lineRule(plan.Path{Path: "/", Access: policy.Read}), d.Origin == plan.ReadsHost:
		return plan.NotWritable // it is the rule about all paths
	}
	return plan.NotWritable + ": " + s
}

// Check says whether a command could do something, from the plan alone. The operations
// are [plan.OpRead] and [plan.OpWrite] of a path, [plan.OpExec] of a path or a name, and
// [plan.OpConnect] to what [policy.ParseDestination] reads (HOST:PORT, udp://HOST:PORT, GET
// http://HOST/PATH …) or to a unix socket: its path, or "@NAME". Paths are the host's, in any
// form that a policy may use; a relative one lies in the workspace. No name is
// looked up: the addresses that it leads to are judged when a command connects.
func (s *Session) Check(op plan.Op, target string) (Decision, error) {
	if _, err := s.plan(); err != nil {
		return Decision{}, err
	}
	if slices.Contains([]plan.Op{plan.OpRead, plan.OpWrite, plan.OpExec, plan.OpConnect}, op) {
		if unconfined, err := s.unconfined(); unconfined || err != nil {
			return Decision{Op: op, Target: target, Allowed: true, Rule: "backend none", Origin: s.engine.Policy().Backend.Origin,
				Reason: "nothing is enforced: commands run without a sandbox"}, err
		}
	}
	switch op {
	case plan.OpRead, plan.OpWrite:
		return s.checkPath(op, target)
	case plan.OpExec:
		return s.checkExec(target)
	case plan.OpConnect:
		if strings.HasPrefix(target, "@") || strings.HasPrefix(target, "/") || isForm(target) {
			return s.checkSocket(target)
		}
		return s.checkHost(target)
	}
	return Decision{}, fmt.Errorf("unknown action %q; known are read, write, exec and connect", op)
}

// unconfined reports whether commands run without a sandbox, by the policy's backend. That
// the sandbox is switched off is not meant: check says what it would refuse.
func (s *Session) unconfined() (bool, error) {
	switch {
	case s.engine.Policy().Disabled:
		return false, nil
	case s.engine.Policy().Backend.Name == none.Name:
		return true, nil
	case s.engine.Policy().Backend.Fallback != policy.FallbackWarn:
		return false, nil
	}
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return false, err
	}
	return s.engine.Choose(snap).Unconfined != nil, nil // without any backend nothing runs, and the policy is what is asked about
}

// abs puts the workspace before a relative path. It removes no "..", which only
// the walk along the real folders can interpret.
func (s *Session) abs(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return s.current().Workspace + string(filepath.Separator) + p
}

// target makes absolute what a person typed: every form of a policy's paths,
// or a path in the workspace.
func (s *Session) target(p string) (string, error) {
	if !isForm(p) {
		return s.abs(p), nil
	}
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return "", err
	}
	return pathx.Expand(p, pathx.Vars{Home: snap.Home, Cwd: s.current().Workspace, Workspace: s.current().Workspace,
		Document: s.opts.document, Self: snap.Self, Env: snap.Getenv})
}

// isForm reports whether a path has to be expanded.
func isForm(p string) bool {
	return p == "cwd" || strings.HasPrefix(p, "cwd/") || strings.HasPrefix(p, "~") || strings.HasPrefix(p, "urn:") || strings.Contains(p, "$")
}

func (s *Session) realTarget(typed string) (string, error) {
	p, err := s.target(typed)
	if err != nil {
		return "", err
	}
	real, err := safeopen.RealPath(p)
	if errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("%s: this user cannot look into a folder on the way, so where the path leads cannot be told", p)
	}
	return real, err
}

// judge is what the session's plan says of a real path of the host. Everything that
// cloche says of a path comes from here, or from the same judge in the broker.
func (s *Session) judge(real string) (plan.Verdict, plan.Path) {
	return s.current().JudgeHost(s.currentJudge(), real)
}

// decidedBy is the rule of a verdict in the words of a policy, and as a line.
func decidedBy(v *plan.Verdict, line plan.Path) (string, plan.Path) {
	if v.At == line.Path && !pathx.IsGlob(v.Subject) {
		return lineRule(line), line
	}
	by := plan.Path{Path: v.Subject, Access: v.Access, Protect: v.Protects(), Reason: v.Reason, Origin: v.Origin}
	return v.Rule + " " + v.Subject, by
}

func (s *Session) checkPath(op plan.Op, target string) (Decision, error) {
	real, err := s.realTarget(target)
	if err != nil {
		return Decision{}, err
	}
	need := policy.Read
	if op == plan.OpWrite {
		need = policy.Write
	}
	return s.decide(op, target, real, need), nil
}

// decide says whether a real path of the host can be used so.
func (s *Session) decide(op plan.Op, target, real string, need policy.Access) Decision {
	v, line := s.judge(real)
	rule, by := decidedBy(&v, line)
	d := Decision{Op: op, Target: target, Resolved: real, Allowed: v.Access >= need, Rule: rule, Reason: v.Reason, Origin: v.Origin}
	if d.Allowed {
		if refusal := s.gitRefusal(real, line); need == policy.Write && refusal != nil {
			d.Allowed, d.Rule, d.Reason, d.Origin = false, refusal.Rule, refusal.Reason, refusal.Origin
		}
		return d
	}
	d.notWritable = need == policy.Write && v.OnlyReads()
	switch matched, ok := s.current().HostPath(v.At); {
	case ok:
		v.At = matched
	case v.At == by.Path:
		v.At = hostLine(by)
	}
	if s.standsIn(line, real) {
		v.At = "" // no rule is about it
	}
	refusal := &plan.Denial{Op: opOf(need, real), Path: real, Verdict: v}
	if op == plan.OpExec {
		refusal.Op = plan.OpExec
	}
	refusal.Of(&plan.Plan{Home: s.current().Home}) // its paths are the host's
	refusal.FixIf(s.tryEdits(func(_ *plan.Denial, p *plan.Plan, j *plan.Judge) policy.Access {
		v, line := p.JudgeHost(j, real)
		if s.gitRefusal(real, line) != nil {
			return min(v.Access, policy.Read)
		}
		return v.Access
	}))
	d.allowBy(refusal)
	if line.Content == plan.Devices && real == "/dev/console" {
		d.Note = "a command with a terminal of its own has that terminal there, and never the host's console"
	}
	return d
}

// allowBy fills in what would allow it, as a command that is refused the same is told.
func (d *Decision) allowBy(denial *plan.Denial) {
	d.Fix, d.Note = denial.Fix(), strings.TrimPrefix(strings.TrimLeft(denials.Remark(denial), ",; "), "which ")
}

// standsIn reports whether a line is for a folder of the run's own, such as /tmp, in
// which the host's file could be shown.
func (s *Session) standsIn(line plan.Path, real string) bool {
	return line.Content == plan.Empty && line.Origin.Layer == policy.LayerBuiltin &&
		s.tryGrant(grant.Grant{Path: real, Access: grant.Read}) == nil
}

// hostLine is the path of the host that a line is about.
func hostLine(line plan.Path) string {
	if line.Content == plan.Host && line.Source != "" {
		return line.Source
	}
	return line.Path
}

// opOf is what a command attempts at a real path: to write a file that is not there
// is to change its folder.
func opOf(need policy.Access, real string) plan.Op {
	if need != policy.Write {
		return plan.OpRead
	}
	if _, err := os.Lstat(real); errors.Is(err, fs.ErrNotExist) {
		return plan.OpCreate
	}
	return plan.OpWrite
}

// checkExec says whether a command could be started: by its path, or by its name
// in the PATH it would have.
func (s *Session) checkExec(target string) (Decision, error) {
	name := target
	if strings.Contains(target, "/") || isForm(target) {
		real, err := s.realTarget(target)
		if err != nil {
			return Decision{}, err
		}
		if isProgram(real) {
			return s.decide(plan.OpExec, target, real, policy.Read), nil
		}
		if name, err = s.target(target); err != nil { // the search says what is wrong with it
			return Decision{}, err
		}
	}
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return Decision{}, err
	}
	p, err := s.engine.Resolve(s.engine.Effective(), snap, resolve.Request{Name: name})
	var missing *CommandError
	if errors.As(err, &missing) {
		return Decision{Op: plan.OpExec, Target: target, Rule: missing.Reason, Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: finding the program"}}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	line := p.Lookup(p.Command.Path)
	return Decision{Op: plan.OpExec, Target: target, Resolved: p.Command.Path, Allowed: true, Rule: lineRule(line), Origin: line.Origin}, nil
}

// isProgram reports whether a path leads to a file that somebody may execute.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// lineRule is a line of the plan in the words of a policy.
func lineRule(l plan.Path) string {
	s := l.Access.String() + " " + l.Path
	if l.Content != plan.Host {
		s += " (" + l.Content.String() + ")"
	}
	return s
}

// checkSocket says whether a unix socket of the host can be reached: by its real path, or an
// abstract one by "@NAME". In the host's own network the grant of one abstract socket opens
// them all, which is a gap.
func (s *Session) checkSocket(target string) (Decision, error) {
	real, rule := target, "abstract sockets are closed unless granted"
	if !strings.HasPrefix(target, "@") {
		var err error
		if real, err = s.realTarget(target); err != nil {
			return Decision{}, err
		}
		rule = "sockets are hidden unless granted"
	}
	d := Decision{Op: plan.OpConnect, Target: target, Resolved: real, Rule: rule, Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"}}
	for _, g := range s.current().Sockets {
		if g.Source == real {
			d.Allowed, d.Rule, d.Origin = true, "sockets "+g.Path, g.Origin
			return d, nil
		}
	}
	d.Fix = []policy.Edit{{Field: "sockets", Value: real}}
	return d, nil
}
