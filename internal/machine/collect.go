package machine

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// Collect returns the facts that every run needs. It starts no process and makes no
// probe: Namespaces.User and Bwrap.Probe stay Unknown until [ProbeAll] or a
// [ProbeCache] sets them, and Container, Cgroup and LSMs stay empty until ProbeAll.
// workspace is the folder that commands will be able to write, or empty.
//
// It fails if the home or the working folder is unknown: rules that begin with "~" or
// are relative to the working folder would then protect nothing.
func Collect(workspace string) (*host.Snapshot, error) {
	s := &host.Snapshot{OS: runtime.GOOS, Arch: runtime.GOARCH, UID: os.Getuid(), GID: os.Getgid(), FS: hostfs.OS{}}
	s.SetEnviron(os.Environ())
	users := sync.OnceValues(readUsers)
	id, err := identify(s.Getenv, s.UID, users)
	if err != nil {
		return nil, err
	}
	s.User, s.Home = id.name, id.home
	passwd, _ := users()
	s.Homes, s.Others = scanHomes(passwd, s.UID, s.Home)
	if s.OS == "darwin" {
		s.Others = append(s.Others, peopleHomes("/Users", s.Home)...)
	}
	s.Dirs = ownDirs(s.Home, s.UID, s.Getenv)
	if s.Cwd, err = workingFolder(); err != nil {
		return nil, fmt.Errorf("the working folder cannot be found (change to a folder that exists): %w", err)
	}
	s.Self = ownProgram()
	collectKernel(s)
	if s.OS == "linux" {
		s.Bwrap.Path = FindProgram("bwrap", workspace)
		s.Bwrap.Setuid = isSetuid(s.Bwrap.Path)
	}
	return s, nil
}

// ownProgram returns the file that this process runs, or "" if it no longer exists.
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

// SetBwrap makes the snapshot use the bwrap at an absolute path, which a policy names,
// and forgets the facts about another one. It does not check that the file exists and
// works; a probe does.
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
