package prober

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// operations are the operations that both `cloche verify` and the conformance suite
// use.
var operations = sync.OnceValue(func() Table {
	return Table{
		// Files. "read" also lists a folder. "open" has flags in N and a mode in M, and writes
		// Data. "rename" has flags in N.
		"read":    read,
		"hash":    hashFile,
		"open":    open,
		"mkdir":   func(a Attempt) (Answer, error) { return Answer{}, unix.Mkdir(string(a.Path), 0o755) },
		"rmdir":   func(a Attempt) (Answer, error) { return Answer{}, unix.Rmdir(string(a.Path)) },
		"unlink":  func(a Attempt) (Answer, error) { return Answer{}, unix.Unlink(string(a.Path)) },
		"rename":  rename,
		"move":    moveAndBack,
		"link":    func(a Attempt) (Answer, error) { return Answer{}, unix.Link(string(a.Path), string(a.To)) },
		"symlink": func(a Attempt) (Answer, error) { return Answer{}, unix.Symlink(string(a.Path), string(a.To)) },
		"readlink": func(a Attempt) (Answer, error) {
			s, err := os.Readlink(string(a.Path))
			return Answer{Data: Text(s)}, err
		},
		"chmod": func(a Attempt) (Answer, error) { return Answer{}, unix.Chmod(string(a.Path), uint32(a.N)) },
		"chown": func(a Attempt) (Answer, error) { return Answer{}, unix.Chown(string(a.Path), int(a.N), int(a.N)) },

		// The network. "dial" connects to To in the network Path and sends Data. With M it also
		// reads the answer. N is the longest time for connecting, in milliseconds.
		"dial":       dial,
		"loopback":   loopback,
		"interfaces": interfaces,

		// Processes and variables.
		"variable":  hashVariable,
		"variables": variableNames,
		"limit":     limit,
		"started":   started,
		"kill":      kill,

		// The kernel.
		"capabilities": capabilities,
		"prctl":        prctl,
		"clone":        clone,
		"mount": func(a Attempt) (Answer, error) {
			return Answer{}, unix.Mount("none", string(a.Path), string(a.To), uintptr(a.N), "")
		},
		"umount": func(a Attempt) (Answer, error) { return Answer{}, unix.Unmount(string(a.Path), int(a.N)) },
		"inject": func(a Attempt) (Answer, error) { return Answer{}, unix.IoctlSetPointerInt(int(a.N), uint(a.M), 'x') },
		"keyring": func(a Attempt) (Answer, error) {
			_, err := unix.KeyctlGetKeyringID(int(a.N), false)
			return Answer{}, err
		},
		"shmget": func(a Attempt) (Answer, error) { _, err := unix.SysvShmGet(int(a.N), 0, 0); return Answer{}, err },
	}
})

// openFlags prevent an attempt from waiting for the other end of a pipe, and from
// getting a controlling terminal.
const openFlags = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// maxRead bounds how much is read of one file.
const maxRead = 1 << 20

// read reads a file or lists a folder.
func read(a Attempt) (Answer, error) {
	fd, err := unix.Open(string(a.Path), unix.O_RDONLY|openFlags, 0)
	if err != nil {
		return Answer{}, err
	}
	f := os.NewFile(uintptr(fd), string(a.Path))
	defer f.Close()
	answer, err := identity(fd)
	if err != nil {
		return answer, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		names, err := f.Readdirnames(-1)
		answer.List = Texts(names)
		return answer, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead))
	answer.Data, answer.N = Text(data), int64(len(data))
	return answer, err
}

// hashFile is read for content that must not leave the sandbox. Data of the answer is
// the hash of the content, salted with the attempt's Data.
func hashFile(a Attempt) (Answer, error) {
	answer, err := read(a)
	answer.Data = Hash(a.Data, answer.Data)
	return answer, err
}

// Hash returns the salted hash of a content or a value.
func Hash(salt, data Text) Text {
	sum := sha256.Sum256([]byte(salt + "\x00" + data))
	return Text(sum[:])
}

func identity(fd int) (Answer, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return Answer{Dev: st.Dev, Ino: st.Ino}, err
}

// open opens a file. Nobody can open a running program for writing; for such a file it
// returns the error of access(2), if there is one.
func open(a Attempt) (Answer, error) {
	fd, err := unix.Open(string(a.Path), int(a.N)|openFlags, uint32(a.M))
	if err == unix.ETXTBSY {
		if denied := unix.Access(string(a.Path), unix.W_OK); denied != nil {
			err = denied
		}
	}
	if err != nil {
		return Answer{}, err
	}
	defer unix.Close(fd)
	answer, err := identity(fd)
	if err == nil && a.Data != "" {
		_, err = unix.Write(fd, []byte(a.Data))
	}
	return answer, err
}

// rename uses the plain system call if there are no flags: a sandbox has to check both
// calls.
func rename(a Attempt) (Answer, error) {
	if a.N == 0 {
		return Answer{}, unix.Rename(string(a.Path), string(a.To))
	}
	return Answer{}, unix.Renameat2(unix.AT_FDCWD, string(a.Path), unix.AT_FDCWD, string(a.To), uint(a.N))
}

// moveAndBack moves a file aside and, if that succeeds, back at once.
func moveAndBack(a Attempt) (Answer, error) {
	a.N = unix.RENAME_NOREPLACE
	answer, err := rename(a)
	if err == nil {
		a.Path, a.To = a.To, a.Path
		_, _ = rename(a) // if this fails, the process outside moves it back
	}
	return answer, err
}

// dialTime bounds one connection. In a network that drops packets the prober would
// otherwise wait for minutes.
const dialTime = 2 * time.Second

func dial(a Attempt) (Answer, error) {
	patience := dialTime
	if a.N != 0 {
		patience = time.Duration(a.N) * time.Millisecond
	}
	conn, err := net.DialTimeout(string(a.Path), string(a.To), patience)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = conn.Close() }()
	if a.Data != "" {
		if _, err := conn.Write([]byte(a.Data)); err != nil {
			return Answer{}, err
		}
	}
	if a.M == 0 {
		return Answer{}, nil
	}
	const readTime = 5 * time.Second
	if err := conn.SetDeadline(time.Now().Add(readTime)); err != nil {
		return Answer{}, err
	}
	reply, err := io.ReadAll(io.LimitReader(conn, maxRead))
	return Answer{Data: Text(reply)}, err
}

// loopback connects to a socket of its own.
func loopback(Attempt) (Answer, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = l.Close() }()
	return dial(Attempt{Path: "tcp4", To: Text(l.Addr().String()), Data: "x"})
}

// interfaces lists the network interfaces that the kernel or /proc shows.
func interfaces(Attempt) (Answer, error) {
	text, err := os.ReadFile("/proc/net/dev")
	var answer Answer
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			answer.List = append(answer.List, Text(strings.TrimSpace(name)))
		}
	}
	all, listErr := net.Interfaces()
	for _, i := range all {
		if !slices.Contains(answer.List, Text(i.Name)) {
			answer.List = append(answer.List, Text(i.Name))
		}
	}
	if err != nil && listErr != nil {
		return answer, err
	}
	return answer, nil
}

func hashVariable(a Attempt) (Answer, error) {
	value, ok := os.LookupEnv(string(a.Path))
	if !ok {
		return Answer{}, unix.ENOENT
	}
	return Answer{Data: Hash(a.Data, Text(value))}, nil
}

// variableNames returns the names of the variables of this process, and of every other
// process whose environment can be read.
func variableNames(Attempt) (Answer, error) {
	all := [][]byte{[]byte(strings.Join(os.Environ(), "\x00"))}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil {
			all = append(all, data)
		}
	}
	var answer Answer
	for entry := range bytes.SplitSeq(bytes.Join(all, []byte{0}), []byte{0}) {
		name, _, ok := bytes.Cut(entry, []byte{'='})
		if ok && !slices.Contains(answer.List, Text(name)) {
			answer.List = append(answer.List, Text(name))
		}
	}
	return answer, nil
}

func limit(a Attempt) (Answer, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(int(a.N), &l)
	return Answer{N: int64(l.Max)}, err
}

func started(a Attempt) (Answer, error) {
	start := StartTime(int(a.N))
	if start == "" {
		return Answer{}, unix.ENOENT
	}
	return Answer{Data: start}, nil
}

// StartTime returns when a process started, in the kernel's units. Together with the
// pid it identifies a process for good. It is empty if the process cannot be seen.
func StartTime(pid int) Text {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name, in parentheses, may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const afterName = 19 // the 22nd field of the file, as an index into the fields after the name
	if len(fields) <= afterName {
		return ""
	}
	return Text(fields[afterName])
}

// kill sends signal M to process N. Ino of the answer is the pid namespace of the
// prober, in which the number has its meaning.
func kill(a Attempt) (Answer, error) {
	err := unix.Kill(int(a.N), syscall.Signal(a.M))
	return Answer{Ino: PIDNamespace()}, err
}

// PIDNamespace identifies the pid namespace of this process. 0 means unknown.
func PIDNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// capabilities returns the capabilities in any set except the bounding set.
func capabilities(Attempt) (Answer, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	var answer Answer
	for i, d := range data {
		answer.N |= int64(d.Effective|d.Permitted|d.Inheritable) << (32 * i)
	}
	return answer, err
}

// prctl returns the attribute N of this process.
func prctl(a Attempt) (Answer, error) {
	n, err := unix.PrctlRetInt(int(a.N), 0, 0, 0, 0)
	return Answer{N: int64(n)}, err
}

// clone starts a process in the new namespaces N. With M, the process unshares them
// itself. The process executes a program that does not exist; that error means that the
// kernel made the namespaces. A new process is needed, because a process with several
// threads cannot enter a user namespace.
func clone(a Attempt) (Answer, error) {
	attr := &syscall.SysProcAttr{Cloneflags: uintptr(a.N)}
	if a.M != 0 {
		attr = &syscall.SysProcAttr{Unshareflags: uintptr(a.N)}
	}
	_, err := syscall.ForkExec("/cloche-no-such-program", []string{"x"}, &syscall.ProcAttr{Sys: attr})
	if errors.Is(err, unix.ENOENT) {
		return Answer{}, nil
	}
	return Answer{}, err
}
