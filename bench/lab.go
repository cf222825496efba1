package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// A lab is one run of the program: a temporary folder with everything that the
// run makes, the programs to measure, and what was found out so far.
type lab struct {
	options
	// dir holds everything; home, outside and the workspaces lie in it.
	dir string
	// home is a home folder with the usual secrets, so that every machine
	// has the same number of them to hide.
	home string
	// outside is a folder that no sandbox may let a command write.
	outside string
	cloche  string
	peers   map[string]peer
	facts   []report.Fact
	skipped []report.Skip
	// remove are further folders that go at the end.
	remove []string
	log    io.Writer
}

// newLab makes the temporary folder. It is not in /tmp where that can be
// avoided: sandboxes replace /tmp, and would hide the home folder with it.
func newLab(o options, log io.Writer) (*lab, error) {
	l := &lab{options: o, log: log, peers: map[string]peer{}}
	parent := o.dir
	if parent == "" {
		parent = scratchParent()
	}
	dir, err := os.MkdirTemp(parent, "cloche-bench-")
	if err != nil {
		return nil, fmt.Errorf("the temporary folder: %w; name another place with -dir", err)
	}
	// A path through a symbolic link is another path inside a sandbox.
	if l.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	l.home, l.outside = filepath.Join(l.dir, "home"), filepath.Join(l.dir, "outside")
	if err := errors.Join(l.fillHome(), os.Mkdir(l.outside, 0o755)); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// scratchParent is the user's cache folder if that can be made.
func scratchParent() string {
	dir, err := os.UserCacheDir()
	if err == nil && os.MkdirAll(dir, 0o700) == nil {
		return dir
	}
	return os.TempDir()
}

// removeTries and removePause bound how long the end of a run waits for
// processes that still write into the folder: what a contender or a compiler
// started ends a little after it when a run is interrupted.
const (
	removeTries = 20
	removePause = 100 * time.Millisecond
)

// close removes everything.
func (l *lab) close() error {
	var err error
	for range removeTries {
		if err = l.removeAll(); err == nil {
			return nil
		}
		time.Sleep(removePause)
	}
	return fmt.Errorf("%w: %w", errNotRemoved, err)
}

func (l *lab) removeAll() error {
	err := os.RemoveAll(l.dir)
	for _, dir := range l.remove {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

var errNotRemoved = errors.New("the temporary folder was not removed")

// say tells the person who waits what happens.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.log, "bench: "+format+"\n", args...)
}

// skip notes, and says at once, that something is not measured.
func (l *lab) skip(name string, reason error) {
	l.skipped = append(l.skipped, report.Skip{Name: name, Reason: reason.Error()})
	l.say("not measured: %s: %v", name, reason)
}

// secretDirs and secretFiles are what many people have in their home folder.
var (
	secretDirs  = []string{".ssh", ".gnupg", ".aws", ".kube", ".config/gcloud", ".config/gh", ".docker"}
	secretFiles = []string{".netrc", ".git-credentials", ".npmrc", ".pypirc", ".docker/config.json", ".bash_history"}
)

// secrets are the paths of all of them.
func (l *lab) secrets() []string {
	var paths []string
	for _, p := range append(append([]string{}, secretDirs...), secretFiles...) {
		paths = append(paths, filepath.Join(l.home, filepath.FromSlash(p)))
	}
	return paths
}

func (l *lab) fillHome() error {
	for _, d := range secretDirs {
		if err := os.MkdirAll(filepath.Join(l.home, filepath.FromSlash(d)), 0o700); err != nil {
			return err
		}
	}
	for _, f := range secretFiles {
		if err := os.WriteFile(filepath.Join(l.home, filepath.FromSlash(f)), []byte("nothing real\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// moveIn makes the made-up home folder that of this process and of everything
// it starts, so that no configuration, cache or audit log of the user is used
// or written.
func (l *lab) moveIn() error {
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return errors.Join(os.Setenv("HOME", l.home), os.Chdir(l.outside))
}

// folder makes a folder in the temporary one.
func (l *lab) folder(name string) (string, error) {
	dir := filepath.Join(l.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// buildCloche builds the command as it is released, stripped and without cgo, and
// copies it as whoever installs it does. The linker writes its file through a
// mapping and leaves it in memory in single pages, which are mapped one by one: a
// start takes a tenth longer until the file is read from the disk again. The
// peers were installed long ago.
func (l *lab) buildCloche(ctx context.Context) error {
	if l.options.cloche != "" {
		abs, err := filepath.Abs(l.options.cloche)
		l.cloche = abs
		return err
	}
	l.say("building cloche")
	l.cloche = filepath.Join(l.dir, "bin", "cloche")
	linked := l.cloche + ".linked"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", linked, "./cmd/cloche")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cloche was not built: %w: %s; start this from the top of the source tree, or name a command with -cloche", err, strings.TrimSpace(string(out)))
	}
	return errors.Join(copyProgram(l.cloche, linked), os.Remove(linked))
}

func copyProgram(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}
