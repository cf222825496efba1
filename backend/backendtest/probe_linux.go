package backendtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempts are what the probe can try, by name.
var attempts = map[string]func(op) (answer, error){}

func init() {
	for _, group := range []map[string]func(op) (answer, error){fileAttempts, processAttempts, networkAttempts, attackAttempts, kernelAttempts, limitAttempts} {
		for name, f := range group {
			attempts[name] = f
		}
	}
}

// probeMain is the program inside. Its arguments are a token that marks the
// process and a list of attempts; it prints the answers.
func probeMain(args []string) int {
	var ops []op
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &ops) != nil {
		fmt.Fprintln(os.Stderr, "probe: a token and a list of attempts are needed")
		return 2
	}
	token = args[0]
	answers := make([]answer, len(ops))
	for i, o := range ops {
		answers[i] = try(o)
	}
	return printJSON(answers)
}

// exit ends the process at once. In a program built with the race detector
// os.Exit sleeps for a second first, in case a report is still to come.
func exit(code int) { unix.Exit(code) }

// token marks the processes of a case.
var token string

func try(o op) answer {
	f, ok := attempts[o.Do]
	if !ok {
		return answer{Error: "the probe does not know " + o.Do}
	}
	a, err := f(o)
	if err == nil {
		return a
	}
	a.Error = err.Error()
	errors.As(err, &a.Errno)
	return a
}

// argumentsMain prints its arguments.
func argumentsMain(args []string) int {
	list := make([]text, len(args))
	for i, a := range args {
		list[i] = text(a)
	}
	return printJSON([]answer{{List: list}})
}

func printJSON(answers []answer) int {
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		return 2
	}
	return 0
}

func done(err error) (answer, error) { return answer{}, err }

// fileAttempts each make one system call on a path.
var fileAttempts = map[string]func(op) (answer, error){
	"read":     readFile,
	"list":     listFolder,
	"write":    writeFile,
	"create":   createFile,
	"lstat":    lstat,
	"readlink": readlink,
	"unlink":   func(o op) (answer, error) { return done(unix.Unlink(string(o.Path))) },
	"rmdir":    func(o op) (answer, error) { return done(unix.Rmdir(string(o.Path))) },
	"mkdir":    func(o op) (answer, error) { return done(unix.Mkdir(string(o.Path), 0o755)) },
	"rename":   func(o op) (answer, error) { return done(unix.Rename(string(o.Path), string(o.To))) },
	"link":     func(o op) (answer, error) { return done(unix.Link(string(o.Path), string(o.To))) },
	"symlink":  func(o op) (answer, error) { return done(unix.Symlink(string(o.Path), string(o.To))) },
	"chmod":    func(o op) (answer, error) { return done(unix.Chmod(string(o.Path), uint32(o.N))) },
	"chown":    func(o op) (answer, error) { return done(unix.Chown(string(o.Path), int(o.N), int(o.N))) },
	"truncate": func(o op) (answer, error) { return done(unix.Truncate(string(o.Path), o.N)) },
	"utime":    func(o op) (answer, error) { return done(unix.Utime(string(o.Path), &unix.Utimbuf{})) },
	"exchange": func(o op) (answer, error) {
		return done(unix.Renameat2(unix.AT_FDCWD, string(o.Path), unix.AT_FDCWD, string(o.To), unix.RENAME_EXCHANGE))
	},
}

// maxRead bounds what the probe reads of one file.
const maxRead = 1 << 20

func readFile(o op) (answer, error) {
	fd, err := unix.Open(string(o.Path), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return done(err)
	}
	return readAll(fd)
}

func readAll(fd int) (answer, error) {
	f := os.NewFile(uintptr(fd), "file")
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRead))
	return answer{Data: text(data)}, err
}

func listFolder(o op) (answer, error) {
	f, err := os.Open(string(o.Path))
	if err != nil {
		return done(err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	a := answer{}
	for _, n := range names {
		a.List = append(a.List, text(n))
	}
	return a, err
}

// writeFile opens a file for writing, making it if need be, and writes Data.
func writeFile(o op) (answer, error) {
	return writeWith(o, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
}

// createFile makes a file with the mode N, which must not be there.
func createFile(o op) (answer, error) {
	return writeWith(o, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(o.N))
}

func writeWith(o op, flags int, mode uint32) (answer, error) {
	fd, err := unix.Open(string(o.Path), flags, mode)
	if err != nil {
		return done(err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(o.Data))
	return done(err)
}

func lstat(o op) (answer, error) {
	var st unix.Stat_t
	err := unix.Lstat(string(o.Path), &st)
	return answer{N: int64(st.Mode)}, err
}

func readlink(o op) (answer, error) {
	target, err := os.Readlink(string(o.Path))
	return answer{Data: text(target)}, err
}

// kernelAttempts are calls that no confined program may make.
var kernelAttempts = map[string]func(op) (answer, error){
	"unshare": func(o op) (answer, error) { return inNamespace(&syscall.SysProcAttr{Unshareflags: uintptr(o.N)}) },
	"clone":   func(o op) (answer, error) { return inNamespace(&syscall.SysProcAttr{Cloneflags: uintptr(o.N)}) },
	"mount":   func(o op) (answer, error) { return done(unix.Mount("none", string(o.Path), "tmpfs", 0, "")) },
	"umount":  func(o op) (answer, error) { return done(unix.Unmount(string(o.Path), unix.MNT_DETACH)) },
	"remount": func(o op) (answer, error) {
		return done(unix.Mount("none", string(o.Path), "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	},
	"inject":    injectInput,
	"shmget":    func(o op) (answer, error) { _, err := unix.SysvShmGet(int(o.N), 0, 0); return done(err) },
	"mq_open":   openQueue,
	"keysearch": searchKey,
}

// inNamespace starts a process the way that attr says; a process of one thread
// makes the call, as the kernel wants it for user namespaces.
func inNamespace(attr *syscall.SysProcAttr) (answer, error) {
	cmd := self()
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		return done(err)
	}
	return done(cmd.Wait())
}

// injectInput pushes a character into the terminal at descriptor N.
func injectInput(o op) (answer, error) {
	c := []byte{'x'}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(o.N), uintptr(o.M), bytePointer(c))
	if errno != 0 {
		return done(errno)
	}
	return answer{}, nil
}

func openQueue(o op) (answer, error) {
	name, err := unix.ByteSliceFromString(string(o.Path))
	if err != nil {
		return done(err)
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, bytePointer(name), uintptr(unix.O_RDWR|o.N), 0o600, 0, 0, 0)
	if errno != 0 {
		return done(errno)
	}
	return done(unix.Close(int(fd)))
}

func searchKey(o op) (answer, error) {
	_, err := unix.KeyctlSearch(int(o.N), "user", string(o.Path), 0)
	return done(err)
}
