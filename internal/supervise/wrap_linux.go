package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// Wrap rewrites a command so that it runs the launch of the spec when the caller starts it.
// Limits and streams of the spec are not used. The launch's own descriptors come after the
// caller's extra files; the garbage collector closes them. The sandbox ends when the lifeline
// closes, a pipe whose other end only this process holds. name is the command's name in
// Args[0].
//
// A launch of system calls is run by cloche's launcher, a static program in memory: see
// [wrapping]. Any other launch executes its own program.
func Wrap(c *exec.Cmd, spec Spec, lifeline *os.File, name string) error {
	l := spec.Launch
	if err := prepare(l); err != nil {
		return err
	}
	if i := slices.Index(c.ExtraFiles, nil); i >= 0 {
		return fmt.Errorf("ExtraFiles[%d] is nil; every extra file has to be open", i)
	}
	if l.Program != nil {
		return wrapProgram(c, &spec, lifeline, name)
	}
	watch, err := newBwrapWatch(name)
	if err != nil {
		return asSetupError(l, "open the descriptors", err)
	}
	var files []*os.File
	defer watch.begin()
	for i := range l.Files {
		f, err := watch.file(&l.Files[i])
		if f == nil && err == nil {
			f, err = openUnwatched(&spec, &l.Files[i], lifeline)
		}
		if err != nil {
			closeAll(files)
			return asSetupError(l, "open the descriptors", err)
		}
		files = append(files, f)
	}
	// bwrap gets a reading end of its own report pipe. Without it, bwrap would die of SIGPIPE
	// if the caller ended, before it lets its child continue, and the child would wait
	// forever.
	reader, err := duplicate(watch.reports)
	if err != nil {
		closeAll(files)
		return asSetupError(l, "open the descriptors", err)
	}
	files = append(files, reader)
	if err := mapRoot(c, l); err != nil {
		closeAll(files)
		return err
	}
	c.Path, c.Args, c.Env = program(l), append([]string{name}, l.Argv[1:]...), l.Env
	c.ExtraFiles = append(c.ExtraFiles, files...)
	return nil
}

// openUnwatched opens a descriptor of a launch that the caller starts itself. The init's
// reports are not among them.
func openUnwatched(spec *Spec, f *backend.File, lifeline *os.File) (*os.File, error) {
	switch f.Kind {
	case backend.Source:
		return openSource(f)
	case backend.Data:
		return openData(f.Data)
	case builtin.Program:
		return openProgram(f.Data)
	case builtin.Lifeline:
		return duplicate(lifeline)
	case builtin.Listener:
		return guardWrapped(spec)
	case builtin.NetworkHandover:
		return networkWrapped(spec)
	}
	return nil, errors.New("a descriptor of a kind that a wrapped command cannot have")
}

// guardWrapped waits for the listener of a wrapped command, and enforces its rules until its
// last process has ended. If the command is never started, the wait ends when the command, and
// with it the other end of the socket, is garbage-collected.
func guardWrapped(spec *Spec) (*os.File, error) {
	ours, theirs, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	g := guardAt(ours, spec)
	if g.err != nil {
		theirs.Close()
		return nil, g.err
	}
	go func() {
		<-g.broker.Done()
		denied, more, _ := g.end() // a command that never ran reports that itself
		g.free()
		if spec.Refused != nil {
			spec.Refused(denied, more)
		}
	}()
	return theirs, nil
}

// mapRoot sets up the user namespace of a launch that the caller starts itself, in addition to
// the caller's SysProcAttr.
func mapRoot(c *exec.Cmd, l *backend.Launch) error {
	if !l.MapRoot {
		return nil
	}
	attr := syscall.SysProcAttr{}
	if c.SysProcAttr != nil {
		attr = *c.SysProcAttr
	}
	if makesUserNamespace(&attr) {
		return conflict("a user namespace", l)
	}
	c.SysProcAttr = &attr
	return mapIdentity(&attr)
}

func makesUserNamespace(attr *syscall.SysProcAttr) bool {
	return attr.Cloneflags&unix.CLONE_NEWUSER != 0 || attr.UidMappings != nil || attr.GidMappings != nil
}

func conflict(what string, l *backend.Launch) error {
	return fmt.Errorf("SysProcAttr asks for %s, which does not go together with the sandbox that backend %s makes; leave it out", what, l.Backend)
}

// wrapProgram makes the command execute the launcher, from a memory file that is one of its
// descriptors. Another descriptor is the program of system calls with all its arguments, laid
// out for the launcher's process. The environment stays in the command, where the caller can
// still change it.
func wrapProgram(c *exec.Cmd, spec *Spec, lifeline *os.File, name string) error {
	l := spec.Launch
	if err := checkAttributes(c.SysProcAttr, l); err != nil {
		return err
	}
	w := &wrapping{launch: l, first: 3 + len(c.ExtraFiles)}
	if err := w.open(spec, lifeline); err != nil {
		closeAll(w.files)
		return asSetupError(l, "prepare the launcher", err)
	}
	c.Path = fmt.Sprintf("/proc/self/fd/%d", w.first)
	c.Args = w.config(spec.Command).Argv(name)
	c.Env = append([]string{}, l.Env...)
	c.ExtraFiles = append(c.ExtraFiles, w.files...)
	return nil
}

// checkAttributes rejects attributes that would give the launcher other rights or another root
// than the plan was made for.
func checkAttributes(attr *syscall.SysProcAttr, l *backend.Launch) error {
	switch {
	case attr == nil:
		return nil
	case attr.Chroot != "":
		return conflict("another root folder (Chroot)", l)
	case attr.Credential != nil:
		return conflict("another user (Credential)", l)
	case makesUserNamespace(attr):
		return conflict("a user namespace", l)
	}
	return nil
}

// A wrapping is the launcher's descriptors, after those of the command: the launcher itself,
// the program, and the files of the program that are open already. The numbers after them are
// for descriptors that the launcher makes.
type wrapping struct {
	launch         *backend.Launch
	first          int
	files          []*os.File
	uidMap, gidMap string
}

// The positions of the first files.
const (
	wrapLauncher = iota
	wrapImage
	wrapOthers
)

func (w *wrapping) config(path string) initprog.LaunchConfig {
	return initprog.LaunchConfig{
		ImageFD: w.first + wrapImage, KeepFDs: w.first - 3, FreeFD: w.free(),
		UIDMap: w.uidMap, GIDMap: w.gidMap, Path: path,
	}
}

// free returns the first number after all files.
func (w *wrapping) free() int {
	n := w.first + wrapOthers
	for i := range w.launch.Files {
		if w.launch.Files[i].Kind != builtin.InitStatus {
			n++
		}
	}
	return n
}

// open opens everything. On an error, the caller closes w.files.
func (w *wrapping) open(spec *Spec, lifeline *os.File) error {
	launcher, err := openLauncher()
	if err != nil {
		return err
	}
	w.files = append(w.files, launcher)
	image, err := w.export()
	if err != nil {
		return err
	}
	f, err := openData(image)
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	for i := range w.launch.Files {
		if w.launch.Files[i].Kind == builtin.InitStatus {
			continue
		}
		f, err := openUnwatched(spec, &w.launch.Files[i], lifeline)
		if err != nil {
			return err
		}
		w.files = append(w.files, f)
	}
	return w.mapIDs()
}

// export lays the program out for the launcher.
func (w *wrapping) export() ([]byte, error) {
	l, free := w.launch, w.free()
	if want := w.first + len(l.Files); len(l.Program.Files) != want {
		return nil, fmt.Errorf("the program has %d files, and the launch %d", len(l.Program.Files), want)
	}
	explain := &SetupError{Backend: l.Backend, Step: "make the sandbox"}
	return sysprog.ExportCommand(l.Program, sysprog.ExportOptions{
		Arch: runtime.GOARCH, Files: w.numbers(), CloneFlags: l.Namespaces,
		Sync:    [2]int{free + initprog.SyncChildEnd, free + initprog.SyncParentEnd},
		Explain: "cloche: " + explain.Error() + ": ",
	})
}

// numbers returns the descriptors of the program's files in the launcher.
func (w *wrapping) numbers() (numbers []int) {
	for n := range w.first {
		numbers = append(numbers, n)
	}
	next := w.first + wrapOthers
	for i := range w.launch.Files {
		if w.launch.Files[i].Kind == builtin.InitStatus {
			numbers = append(numbers, w.free()+initprog.StatusEnd)
			continue
		}
		numbers = append(numbers, next)
		next++
	}
	return numbers
}

// mapIDs sets the ids that the launcher maps for a program that waits for that.
func (w *wrapping) mapIDs() (err error) {
	if !w.launch.MapRoot {
		return nil
	}
	if w.uidMap, err = mapText("/proc/self/uid_map"); err != nil {
		return err
	}
	w.gidMap, err = mapText("/proc/self/gid_map")
	return err
}

// mapText returns the map of every id to itself, in the kernel's format.
func mapText(path string) (string, error) {
	maps, err := identity(path)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, m := range maps {
		fmt.Fprintf(&text, "%d %d %d\n", m.ContainerID, m.HostID, m.Size)
	}
	return text.String(), nil
}

// launcherFile is the launcher as a memory file, made once.
var launcherFile = sync.OnceValues(func() (*os.File, error) {
	elf, err := initprog.Launcher()
	if err != nil {
		return nil, err
	}
	return makeProgram(elf)
})

func openLauncher() (*os.File, error) {
	f, err := launcherFile()
	if err != nil {
		return nil, err
	}
	return duplicate(f)
}
