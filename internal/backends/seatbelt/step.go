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

// shell is the first program that runs inside. It is a part of macOS, and with -p it reads no
// file and takes no function from the environment.
const shell = "/bin/bash"

// arguments returns the arguments of sandbox-exec. The profile is an argument and not a file,
// because a file could be changed between check and use.
//
// sandbox-exec exits with 65 for a profile that it cannot read and with 71 if it may not apply
// it, and the command could do the same. So a line of shell runs first inside and reports over
// a descriptor that it runs: without that report the sandbox was not made. The shell also sets
// the limits that macOS supports.
func arguments(p *plan.Plan, profile string, ready int) []string {
	argv := []string{launcher, "-p", profile, shell, "-p", "-c", step(p, ready), p.Command.Args[0], program.Unmap(p, p.Command.Path)}
	return append(argv, p.Command.Args[1:]...)
}

// step returns the line of shell. It executes the program under the name that the caller gave
// it, which sandbox-exec alone cannot do. Only numbers are put into the text; names and
// arguments are parameters.
func step(p *plan.Plan, ready int) string {
	var b strings.Builder
	if n := p.Limit(plan.LimitFileSize); n >= 0 {
		fmt.Fprintf(&b, "ulimit -f %d || exit 125; ", (n+1023)/1024)
	}
	if n := p.Limit(plan.LimitOpenFiles); n >= 0 {
		// If this is more than the caller's limit, the caller's limit stays.
		fmt.Fprintf(&b, "ulimit -n %d 2>/dev/null; ", n)
	}
	fmt.Fprintf(&b, "printf . >&%d || exit 125; exec %d>&-; ", ready, ready)
	if unset := own(p); len(unset) > 0 {
		b.WriteString("unset " + strings.Join(unset, " ") + "; ")
	}
	b.WriteString(`exec -a "$0" "$@"`)
	return b.String()
}

// own returns the variables that the shell sets by itself and the plan does not have.
func own(p *plan.Plan) []string {
	return slices.DeleteFunc([]string{"OLDPWD", "PWD", "SHLVL"}, func(name string) bool {
		return slices.ContainsFunc(p.Env, func(v plan.Var) bool { return v.Name == name })
	})
}

// environ returns the command's environment. The supervisor sets TMPDIR, unless the policy
// shares the caller's temporary folders.
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

// sharesTmp reports whether the plan shares the caller's temporary folders.
func sharesTmp(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Paths, func(e plan.Path) bool {
		return canonical(e.Path) == "/private/tmp" && e.Content == plan.Host && e.Access == policy.Write
	})
}
