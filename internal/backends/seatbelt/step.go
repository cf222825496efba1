package seatbelt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// shell is what runs inside first. It is a part of macOS, and with -p it reads
// no file and takes no function from the environment.
const shell = "/bin/bash"

// arguments are what sandbox-exec is started with. The profile is an argument and
// not a file, which somebody could change between the check and the use.
//
// sandbox-exec ends with 65 for a profile that it cannot read and with 71 if it
// may not apply it, and so may the command. So the first thing that runs inside
// is a line of shell which says over a descriptor that it does: without that the
// sandbox was not made. It sets the limits that macOS has, too.
func arguments(p *plan.Plan, profile string, ready int) []string {
	argv := []string{launcher, "-p", profile, shell, "-p", "-c", step(p, ready), p.Command.Args[0], program.Unmap(p, p.Command.Path)}
	return append(argv, p.Command.Args[1:]...)
}

// step is the line of shell. The program is called by the name that the caller
// gave it, which sandbox-exec alone could not do. Only numbers get into the text;
// names and arguments are parameters.
func step(p *plan.Plan, ready int) string {
	var b strings.Builder
	if n := p.Limit(plan.LimitFileSize); n >= 0 {
		fmt.Fprintf(&b, "ulimit -f %d || exit 125; ", (n+1023)/1024)
	}
	if n := p.Limit(plan.LimitOpenFiles); n >= 0 {
		// Where this is more than the caller has, what the caller has holds.
		fmt.Fprintf(&b, "ulimit -n %d 2>/dev/null; ", n)
	}
	fmt.Fprintf(&b, "printf . >&%d || exit 125; exec %d>&-; ", ready, ready)
	if unset := own(p); len(unset) > 0 {
		b.WriteString("unset " + strings.Join(unset, " ") + "; ")
	}
	b.WriteString(`exec -a "$0" "$@"`)
	return b.String()
}

// own are the variables that the shell sets by itself and the plan does not have.
func own(p *plan.Plan) []string {
	return slices.DeleteFunc([]string{"OLDPWD", "PWD", "SHLVL"}, func(name string) bool {
		return slices.ContainsFunc(p.Env, func(v plan.Var) bool { return v.Name == name })
	})
}

// environ is the command's environment. TMPDIR is the supervisor's to set, unless
// the policy shares the caller's temporary folders.
func environ(p *plan.Plan, s *host.Snapshot) []string {
	env := []string{}
	for _, v := range p.Env {
		if v.Name != "TMPDIR" {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	if dir, ok := s.Getenv("TMPDIR"); ok && sharesTmp(p) {
		env = append(env, "TMPDIR="+dir)
	}
	return env
}

// sharesTmp reports whether the caller's temporary folders can be used.
func sharesTmp(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Paths, func(e plan.Path) bool {
		return canonical(e.Path) == "/private/tmp" && e.Content == plan.Host && e.Access == policy.Write
	})
}
