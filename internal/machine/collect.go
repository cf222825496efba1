package machine

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// Options say how to collect a Snapshot. The zero value is right for a caller
// that has no workspace.
type Options struct {
	// Workspace is the folder that commands will be able to write, absolute or
	// empty. Programs are never looked up inside it: a command could have put
	// them there.
	Workspace string
	// Environ is the caller's environment; nil is the process's own.
	Environ []string
	// BwrapPath is the bwrap that the user configured. It is taken as it is:
	// see [CheckProgram]. Empty: look one up.
	BwrapPath string
}

// Collect gathers the facts that every run needs. It starts no process and
// makes no probe: Namespaces.User and Bwrap.Probe stay Unknown until
// [Snapshot.ProbeAll] or a [ProbeCache] fills them in, and Container, Cgroup and
// LSMs stay empty until ProbeAll.
//
// It fails where the home or working folder cannot be found out, because rules
// written with "~" or relative to the working folder would then protect
// nothing.
func Collect(opts Options) (*host.Snapshot, error) {
	s := &host.Snapshot{
		OS:      runtime.GOOS,
		Arch:    runtime.GOARCH,
		UID:     os.Getuid(),
		GID:     os.Getgid(),
		Environ: opts.Environ,
		FS:      hostfs.OS{},
	}
	if s.Environ == nil {
		s.Environ = os.Environ()
	}
	s.SetEnviron(s.Environ)

	users := newUserDB()
	id, err := identify(s.Getenv, s.UID, users.entry)
	if err != nil {
		return nil, err
	}
	s.User, s.Home = id.name, id.home
	s.Homes, s.Others = users.otherHomes(s.UID, s.Home)
	s.Others = append(s.Others, people(s.Home)...)
	s.Dirs = ownDirs(s.Home, s.UID, s.Getenv)
	if s.Cwd, err = workingFolder(); err != nil {
		return nil, fmt.Errorf("the working folder cannot be found (change to a folder that exists): %w", err)
	}
	s.Self = ownProgram()
	collectKernel(s)
	if opts.BwrapPath == "" {
		s.Bwrap = findBwrap(s, opts.Workspace)
	} else if err := SetBwrap(s, opts.BwrapPath); err != nil {
		return nil, err
	}
	return s, nil
}

// ownProgram is the file that this process runs, or empty if that is gone.
func ownProgram() string {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return ""
	}
	return self
}

// SetBwrap makes the snapshot use the bwrap at an absolute path, which a policy
// configured, and forgets what was known of another one. Whether it is there
// and works is for a probe to say.
func SetBwrap(s *host.Snapshot, file string) error {
	if !path.IsAbs(file) {
		return fmt.Errorf("the path of bwrap is %q: it has to be absolute, so that no folder of a workspace can supply it", file)
	}
	file = path.Clean(file)
	if file != s.Bwrap.Path {
		s.Bwrap = host.Bwrap{Path: file, Setuid: isSetuid(file)}
	}
	return nil
}
