package difftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/plan"
)

// The first arguments that make the test binary something else.
const (
	workerWord = "cloche-difftest-worker"
	proberWord = "cloche-difftest-prober"
	clocheWord = "cloche-difftest-cloche"
)

// An op is one operation on a path of the host.
type op struct {
	Do   string
	Path string // as the host names it
	// Ways are the paths under which the sandbox may have the same file.
	Ways []string
	// dev and ino are the host's file, 0 if it is to be made.
	dev, ino uint64
}

func (o op) String() string { return o.Do + " " + o.Path }

// action is what check is asked for.
func (o op) action() plan.Op {
	switch o.Do {
	case "read", "list":
		return plan.OpRead
	case "exec":
		return plan.OpExec
	}
	return plan.OpWrite
}

// An attempt is how an operation went by one of its ways: an error, or the file that
// was reached.
type attempt struct {
	Errno    syscall.Errno
	Dev, Ino uint64
}

// workerMain tries operations and prints the attempts: a list for each operation.
func workerMain(text string) int {
	var ops []op
	if err := json.Unmarshal([]byte(text), &ops); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	out := make([][]attempt, len(ops))
	for i, o := range ops {
		for _, way := range o.Ways {
			out[i] = append(out[i], try(o.Do, way))
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 2
	}
	return 0
}

func try(do, path string) attempt {
	var a attempt
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	a.Dev, a.Ino = st.Dev, st.Ino
	switch do {
	case "read":
		return opened(path, unix.O_RDONLY|unix.O_NONBLOCK)
	case "write":
		return opened(path, unix.O_WRONLY|unix.O_NONBLOCK)
	case "list":
		_, lists := os.ReadDir(path)
		if a = opened(path, unix.O_RDONLY|unix.O_DIRECTORY); a.Errno == 0 {
			a.Errno = errno(lists)
		}
		return a
	case "create":
		return opened(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	case "mkdir":
		if a.Errno = errno(unix.Mkdir(path, 0o755)); a.Errno == 0 {
			a.Errno = errno(unix.Lstat(path, &st))
			a.Dev, a.Ino = st.Dev, st.Ino
		}
		return a
	case "exec":
		a = opened(path, unix.O_PATH)
		if err := errno(exec.Command(path).Run()); a.Errno == 0 { // tried also if there is nothing: that is what is refused
			a.Errno = err
		}
		return a
	case "rename":
		if a.Errno = errno(unix.Rename(path, path+".moved")); a.Errno == 0 {
			_ = unix.Rename(path+".moved", path)
		}
		return a
	case "unlink":
		a.Errno = errno(os.Remove(path))
		return a
	}
	a.Errno = errno(err)
	return a
}

func opened(path string, flags int) attempt {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return attempt{Errno: errno(err)}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return attempt{Errno: errno(err)}
	}
	return attempt{Dev: st.Dev, Ino: st.Ino}
}

func errno(err error) syscall.Errno {
	var n syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &n):
		return n
	}
	return syscall.EIO
}

// A world is the tree that a case is about.
type world struct{ base, ws, home string }

// The tree: directories end in a slash, links have their target.
var tree = []string{
	"ws/", "ws/f", "ws/g.toml", "ws/prog*", "ws/a/", "ws/a/f", "ws/a/g.toml", "ws/a/sub/", "ws/a/sub/h", "ws/a/sub/prog*", "ws/b/", "ws/b/f", "ws/b/deep/", "ws/b/deep/er/", "ws/b/deep/er/f",
	"ws/la -> a", "ws/lf -> a/f", "ws/lout -> ../out/o", "ws/.vscode/", "ws/.vscode/tasks.json", "ws/.envrc",
	"ws/.git/", "ws/.git/HEAD", "ws/.git/config", "ws/.git/objects/", "ws/.git/refs/", "ws/.git/hooks/",
	"out/", "out/f", "out/o/", "out/o/f", "out/o/g.toml", "out/o/sub/", "out/o/sub/h", "out/lws -> ../ws/a", "home/", "home/.ssh/", "home/.ssh/id", "home/.config/", "home/x/", "home/x/f",
}

func newWorld(base string) *world {
	return &world{base: base, ws: base + "/ws", home: base + "/home"}
}

// reset makes the tree as it was.
func (w *world) reset() error {
	for _, dir := range []string{"ws", "out", "home"} {
		if err := os.RemoveAll(w.base + "/" + dir); err != nil {
			return err
		}
	}
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		return err
	}
	for _, e := range tree {
		name, target, link := strings.Cut(e, " -> ")
		p := w.base + "/" + strings.TrimRight(name, "/*")
		switch {
		case link:
			err = os.Symlink(target, p)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o755)
		case strings.HasSuffix(name, "*"):
			err = os.WriteFile(p, program, 0o755)
		default:
			err = os.WriteFile(p, []byte(name), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names are the paths of the tree, files first or directories only.
func (w *world) names(dirs bool) []string {
	var list []string
	for _, e := range tree {
		name, target, link := strings.Cut(e, " -> ")
		dir := strings.HasSuffix(name, "/") || link && (target == "a" || target == "../out/o" || target == "../ws/a")
		if dir == dirs {
			list = append(list, w.base+"/"+strings.TrimRight(name, "/*"))
		}
	}
	return list
}

// succeeded reports whether an operation reached the host's file by one of its ways.
func succeeded(o op, attempts []attempt) bool {
	for _, a := range attempts {
		if a.Errno != 0 {
			continue
		}
		if o.Do == "unlink" {
			if _, err := os.Lstat(o.Path); errors.Is(err, fs.ErrNotExist) {
				return true
			}
			continue
		}
		dev, ino := o.dev, o.ino
		var st unix.Stat_t
		if ino == 0 && unix.Stat(o.Path, &st) == nil {
			dev, ino = st.Dev, st.Ino
		}
		if dev == a.Dev && ino == a.Ino {
			return true
		}
	}
	return false
}

func isMain() (int, bool) {
	if len(os.Args) < 2 {
		return 0, false
	}
	switch os.Args[1] {
	case clocheWord:
		return cli.Main(os.Args[2:]), true
	case workerWord:
		return workerMain(os.Args[2]), true
	case proberWord:
		if err := cloche.RunProber(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2, true
		}
		return 0, true
	}
	return 0, false
}
