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
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Check reports whether a command could do something, from the plan alone. The operations are
// [plan.OpRead] and [plan.OpWrite] of a path, [plan.OpExec] of a path or a name, and
// [plan.OpConnect] to a destination in a form of [policy.ParseDestination] (HOST:PORT,
// udp://HOST:PORT, GET http://HOST/PATH …) or to a unix socket: its path, or "@NAME". Paths
// are host paths, in any form that a policy may use; a relative path is in the workspace.
// Check resolves no host name: the addresses are checked when a command connects. The path in
// the decision is a host path.
func (s *Session) Check(op plan.Op, target string) (plan.Decision, error) {
	if _, err := s.plan(); err != nil {
		return plan.Decision{}, err
	}
	if slices.Contains([]plan.Op{plan.OpRead, plan.OpWrite, plan.OpExec, plan.OpConnect}, op) {
		if unconfined, err := s.unconfined(); unconfined || err != nil {
			return plan.Decision{Op: op, Allowed: true, Rule: "backend none", Origin: s.engine.Policy().Backend.Origin,
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
	return plan.Decision{}, fmt.Errorf("unknown action %q; known are read, write, exec and connect", op)
}

// unconfined reports whether the policy's backend makes commands run without a sandbox. It is
// false for a disabled sandbox: check then says what the policy would deny.
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
	// If no backend works, nothing runs. Check then answers from the policy.
	return s.engine.Choose(snap).Unconfined != nil, nil
}

// abs puts the workspace before a relative path. It keeps "..", because only a walk along the
// real folders can resolve it.
func (s *Session) abs(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return s.current().Workspace + string(filepath.Separator) + p
}

// target makes a typed path absolute. It accepts every form of a policy's paths, and paths
// relative to the workspace.
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

// isForm reports whether a path is in a policy's form, such as "~" or "$VAR", and has to be
// expanded.
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
		return "", fmt.Errorf("%s: this user cannot search a folder on the way, so it is not known where the path leads", p)
	}
	return real, err
}

// judge returns the decision of the session's plan about a real path of the host. Every
// statement about a path comes from here, or from the same code in the broker.
func (s *Session) judge(real string) (plan.Decision, plan.Path) {
	return s.currentJudge().HostPath(s.current(), real)
}

func (s *Session) checkPath(op plan.Op, target string) (plan.Decision, error) {
	real, err := s.realTarget(target)
	if err != nil {
		return plan.Decision{}, err
	}
	return s.decide(op, real), nil
}

// decide reports whether the operation is allowed on a real path of the host.
func (s *Session) decide(op plan.Op, real string) plan.Decision {
	d, line := s.judge(real)
	d.Op, d.Path, d.Allowed = op, real, d.Access >= needOf(op)
	if d.At == line.Path && !pathx.IsGlob(d.Subject) {
		d.Line = &line
	}
	if d.Allowed {
		if refusal := s.gitRefusal(real, line); op == plan.OpWrite && refusal != nil {
			refusal.Op, refusal.Path = op, real
			return *refusal
		}
		return d
	}
	if matched, ok := s.current().HostPath(d.At); ok {
		d.At = matched
	}
	if s.standsIn(line, real) {
		d.At = "" // cloche's own private folder is there, and no rule
	}
	s.fix(&d)
	if line.Content == plan.Devices && real == "/dev/console" {
		d.NoFix = "a command with a terminal of its own has that terminal there, and never the host's console"
	}
	return d
}

// needOf is the access that an operation on a file needs.
func needOf(op plan.Op) policy.Access {
	if op == plan.OpWrite {
		return policy.Write
	}
	return policy.Read
}

// fix adds the edits that would allow the operation on a real path of the host. Writing a file
// that does not exist changes its folder, so that is tried as a create.
func (s *Session) fix(d *plan.Decision) {
	attempt := *d
	if _, err := os.Lstat(d.Path); d.Op == plan.OpWrite && errors.Is(err, fs.ErrNotExist) {
		attempt.Op = plan.OpCreate
	}
	f := judge.Fixer{Plan: &plan.Plan{Home: s.current().Home}} // the decision's paths are host paths, so the plan must not translate them
	f.Works = s.tryEdits(nil, func(_ *plan.Decision, p *plan.Plan, j *judge.Files) policy.Access {
		with, line := j.HostPath(p, d.Path)
		if s.gitRefusal(d.Path, line) != nil {
			return min(with.Access, policy.Read)
		}
		return with.Access
	})
	f.Fix(&attempt)
	attempt.Op = d.Op
	*d = attempt
}

// standsIn reports whether a line is for a private folder that every sandbox has, such as
// /tmp, and a grant could show the host's file in it.
func (s *Session) standsIn(line plan.Path, real string) bool {
	return line.Content == plan.Empty && line.Origin.Layer == policy.LayerBuiltin &&
		s.tryGrant(grant.Grant{Path: real, Access: grant.Read}) == nil
}

// checkExec reports whether a program could be started: by its path, or by its name in the
// PATH that the command would have.
func (s *Session) checkExec(target string) (plan.Decision, error) {
	name := target
	if strings.Contains(target, "/") || isForm(target) {
		real, err := s.realTarget(target)
		if err != nil {
			return plan.Decision{}, err
		}
		if isProgram(real) {
			return s.decide(plan.OpExec, real), nil
		}
		if name, err = s.target(target); err != nil { // the resolver below reports what is wrong with it
			return plan.Decision{}, err
		}
	}
	snap, err := s.engine.Snapshot(nil)
	if err != nil {
		return plan.Decision{}, err
	}
	p, err := s.engine.Resolve(s.engine.Effective(), snap, resolve.Request{Name: name})
	var missing *CommandError
	if errors.As(err, &missing) {
		return plan.Decision{Op: plan.OpExec, Rule: missing.Reason, Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: finding the program"}}, nil
	}
	if err != nil {
		return plan.Decision{}, err
	}
	line := p.Lookup(p.Command.Path)
	d := judge.ByLine(&line)
	d.Op, d.Path, d.Allowed, d.Line, d.Reason = plan.OpExec, p.Command.Path, true, &line, ""
	return d, nil
}

// isProgram reports whether a path is a regular file with an execute bit.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// checkSocket reports whether a unix socket of the host can be reached: by its real path, or
// as "@NAME" for an abstract socket. In network mode host, a grant of one abstract socket
// opens all of them; that is a gap.
func (s *Session) checkSocket(target string) (plan.Decision, error) {
	real, rule := target, "abstract sockets are closed unless granted"
	if !strings.HasPrefix(target, "@") {
		var err error
		if real, err = s.realTarget(target); err != nil {
			return plan.Decision{}, err
		}
		rule = "sockets are hidden unless granted"
	}
	for _, g := range s.current().Sockets {
		if g.Source == real {
			return plan.Decision{Op: plan.OpConnect, Path: real, Allowed: true, Rule: judge.RuleSockets, Subject: g.Path, Origin: g.Origin}, nil
		}
	}
	return plan.Decision{Op: plan.OpConnect, Path: real, Rule: rule, Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: sockets"},
		Fix: []policy.Edit{{Field: "sockets", Value: real}}}, nil
}
