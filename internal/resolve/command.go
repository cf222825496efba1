package resolve

import (
	"path"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// fallbackPath is searched if the command's environment has no PATH.
const fallbackPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command finds the program and the working folder, and makes both visible.
func (b *builder) command() {
	dir, ok := b.workDir()
	if !ok || b.req.Name == "" {
		return
	}
	at, real, found := b.program(dir)
	if !found {
		return
	}
	b.reachProgram(real)
	b.plan.Command = &plan.Command{Path: at, Args: b.arguments(), Dir: dir, ExtraFiles: b.req.ExtraFiles, Terminal: b.req.Terminal}
}

func (b *builder) arguments() []string {
	if len(b.req.Args) == 0 {
		return []string{b.req.Name}
	}
	return b.req.Args
}

// workDir returns the working folder, which has to be visible inside.
func (b *builder) workDir() (string, bool) {
	dir := b.req.Dir
	if dir == "" {
		dir = b.plan.Workspace
	}
	real, err := b.follow(dir)
	bad := func(reason, fix string) (string, bool) {
		b.fail(&PolicyError{Rule: "working folder", Path: dir, Reason: reason, Fix: fix})
		return "", false
	}
	switch {
	case err != nil:
		return bad(err.Error(), "")
	case real.missing():
		return bad("no such folder", "name another with --chdir")
	case real.info.Kind != hostfs.Dir:
		return bad("is a "+kindName(real.info.Kind)+", not a folder", "name a folder with --chdir")
	}
	line := b.plan.Lookup(real.path)
	if line.Access == policy.Hidden || line.Content != plan.Host {
		return bad("cannot be seen inside ("+line.Origin.String()+")", "grant it with --ro or --rw, or start elsewhere with --chdir")
	}
	return real.path, true
}

// program finds the program as execvp would, in the PATH of the command. The program is
// started by the path found, with links not resolved, because programs that are one file with
// several names depend on it.
func (b *builder) program(dir string) (at string, real realPath, found bool) {
	name := b.req.Name
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(dir, name)
		}
		if pathx.Within("/proc", path.Clean(name)) { // /proc/self/exe would be the init of the sandbox
			b.fail(&CommandError{Name: b.req.Name, Reason: "means another program inside, where /proc is the sandbox's own; name the program by its path"})
			return "", realPath{}, false
		}
		real, found = b.executable(path.Clean(name))
		return path.Clean(name), real, found
	}
	for _, d := range strings.Split(searchPath(b.plan.Env), ":") {
		// A relative entry would be resolved in the working folder, where a command could have
		// left a program for the next one.
		if !path.IsAbs(d) {
			continue
		}
		at = path.Join(d, name)
		real, err := b.fs.follow(at)
		if err == nil && real.info.Kind == hostfs.File && real.info.Mode&0o111 != 0 {
			b.links = append(b.links, real.links...)
			return at, real, true
		}
	}
	b.fail(&CommandError{Name: name, Reason: "command not found in PATH", NotFound: true})
	return "", realPath{}, false
}

// searchPath returns the PATH that a command with these variables uses.
func searchPath(env []plan.Var) string {
	search := fallbackPath
	for i := range env {
		if env[i].Name == "PATH" && env[i].Value != "" {
			search = env[i].Value
		}
	}
	return search
}

func (b *builder) executable(p string) (realPath, bool) {
	real, err := b.follow(p)
	switch {
	case err != nil:
		b.fail(&CommandError{Name: b.req.Name, Reason: err.Error()})
	case real.denied:
		b.fail(&CommandError{Name: b.req.Name, Reason: "permission denied"})
	case real.missing() && b.inReview(real.path):
		return real, true
	case real.missing():
		b.fail(&CommandError{Name: b.req.Name, Reason: "no such file", NotFound: true})
	case real.info.Kind != hostfs.File:
		b.fail(&CommandError{Name: b.req.Name, Reason: "is a " + kindName(real.info.Kind) + ", not a program"})
	case real.info.Mode&0o111 == 0:
		b.fail(&CommandError{Name: b.req.Name, Reason: "is not executable; set its execute permission with chmod +x"})
	default:
		return real, true
	}
	return realPath{}, false
}

// inReview reports whether an earlier command of the review may have made a file that the host does not
// have. If it is not there either, the init says so.
func (b *builder) inReview(p string) bool {
	line := b.plan.Lookup(p)
	return b.plan.Reviews(&line)
}

// reachProgram shows the program if the policy does not show its folder. A rule that hides the
// program is respected.
func (b *builder) reachProgram(real realPath) {
	line := b.plan.Lookup(real.path)
	shown := line.Content == plan.Host && line.Access != policy.Hidden
	switch {
	case shown:
	case line.Origin.Layer != policy.LayerBuiltin && line.Access == policy.Hidden:
		b.fail(&CommandError{Name: b.req.Name, Reason: "is hidden by " + line.Origin.String()})
	default:
		if b.reached = true; b.fixed {
			return
		}
		b.put(plan.Path{Path: real.path, Source: real.path, Kind: hostfs.File, Access: policy.Read, Origin: builtin("the command's own program")})
	}
}
