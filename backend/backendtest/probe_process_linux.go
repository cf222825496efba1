package backendtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func bytePointer(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// self returns a command that runs this program again with other attempts.
func self(ops ...op) *exec.Cmd {
	if ops == nil {
		ops = []op{}
	}
	list, err := json.Marshal(ops)
	if err != nil {
		panic(err)
	}
	return exec.Command("/proc/self/exe", probeWord, token, string(list))
}

// processAttempts are about processes, variables and descriptors.
var processAttempts = map[string]func(op) (answer, error){
	"kill":      func(o op) (answer, error) { return done(unix.Kill(int(o.N), syscall.Signal(o.M))) },
	"processes": listProcesses,
	"environ":   func(op) (answer, error) { return answer{List: texts(os.Environ())}, nil },
	"environs":  allEnvironments,
	"fds":       listDescriptors,
	"readfd":    func(o op) (answer, error) { return readAll(int(o.N)) },
	"cwd":       workingFolder,
	"stdin": func(op) (answer, error) {
		b, err := io.ReadAll(os.Stdin)
		return answer{Data: text(b)}, err
	},
	"daemon":    startDaemon,
	"detach":    detach,
	"heartbeat": heartbeat,
	"sleep":     func(o op) (answer, error) { time.Sleep(time.Duration(o.N) * time.Millisecond); return answer{}, nil },
	"say":       func(o op) (answer, error) { _, err := os.Stdout.WriteString(string(o.Data)); return done(err) },
	"await":     func(o op) (answer, error) { return done(awaitFile(string(o.Path))) },
}

func texts(list []string) []text {
	out := make([]text, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}

// listProcesses lists the command lines of all processes that can be seen.
func listProcesses(op) (answer, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	a := answer{}
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil {
			a.List = append(a.List, text(line))
		}
	}
	return a, err
}

// allEnvironments reads the environment of every process that can be seen.
func allEnvironments(op) (answer, error) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	a := answer{}
	for _, f := range files {
		if env, err := os.ReadFile(f); err == nil {
			a.List = append(a.List, text(env))
		}
	}
	return a, err
}

// listDescriptors lists the open descriptors above 2. Those that the runtime
// makes for itself are left out.
func listDescriptors(op) (answer, error) {
	a := answer{}
	for fd := 3; fd < 1024; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			return a, err
		}
		if ofRuntime(target) {
			continue
		}
		a.List = append(a.List, text(strconv.Itoa(fd)+" "+target))
	}
	return a, nil
}

// ofRuntime knows what Go's runtime keeps open: its poller, and the files by
// which it learns how many processors it may use.
func ofRuntime(target string) bool {
	return strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/")
}

func workingFolder(op) (answer, error) {
	buf := make([]byte, 2*unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil {
		return done(err)
	}
	return answer{Data: text(buf[:n-1])}, nil
}

// startDaemon leaves a process behind that has left its parents, its session
// and its process group, ignores signals and writes to a file.
func startDaemon(o op) (answer, error) {
	cmd := self(op{Do: "detach", Path: o.Path})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return done(err)
	}
	return done(awaitFile(string(o.Path)))
}

func detach(o op) (answer, error) {
	cmd := self(op{Do: "heartbeat", Path: o.Path})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return done(cmd.Start())
}

// heartbeat writes to a file again and again, for a minute at most.
func heartbeat(o op) (answer, error) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	for i := range 3000 {
		if err := os.WriteFile(string(o.Path), []byte(strconv.Itoa(i)), 0o644); err != nil {
			return done(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return answer{}, nil
}

// awaitTime bounds waiting for something that another process does.
const awaitTime = 30 * time.Second

func awaitFile(p string) error {
	for end := time.Now().Add(awaitTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(p); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s did not appear", p)
}

// networkAttempts are about sockets.
var networkAttempts = map[string]func(op) (answer, error){
	"connect":    connect,
	"connectfd":  connectByDescriptor,
	"datagram":   datagram,
	"send":       sendDatagrams,
	"talk":       talk,
	"interfaces": interfaces,
}

const dialTime = 5 * time.Second

// connect connects to To in the network Path, and reads what it is greeted with. N
// is how many milliseconds the connecting may take, if that matters.
func connect(o op) (answer, error) {
	patience := dialTime
	if o.N != 0 {
		patience = time.Duration(o.N) * time.Millisecond
	}
	conn, err := net.DialTimeout(string(o.Path), string(o.To), patience)
	if err != nil {
		return done(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return done(err)
	}
	greeting, err := io.ReadAll(io.LimitReader(conn, maxRead))
	return answer{Data: text(greeting)}, err
}

func datagram(o op) (answer, error) {
	conn, err := net.DialTimeout(string(o.Path), string(o.To), dialTime)
	if err != nil {
		return done(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte(o.Data))
	return done(err)
}

// talk listens at To and has another process inside connect to it.
func talk(o op) (answer, error) {
	l, err := net.Listen(string(o.Path), string(o.To))
	if err != nil {
		return done(err)
	}
	defer func() { _ = l.Close() }()
	go greet(l, string(o.Data))
	out, err := self(op{Do: "connect", Path: o.Path, To: text(l.Addr().String())}).Output()
	if err != nil {
		return done(err)
	}
	var answers []answer
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != 1 {
		return done(fmt.Errorf("the other process said %q: %w", out, err))
	}
	return answers[0], nil
}

// greet greets everyone who connects.
func greet(l net.Listener, with string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte(with))
		_ = conn.Close()
	}
}

func interfaces(op) (answer, error) {
	all, err := net.Interfaces()
	a := answer{}
	for _, i := range all {
		a.List = append(a.List, text(i.Name))
	}
	return a, err
}

// limitAttempts use something up, within bounds of their own.
var limitAttempts = map[string]func(op) (answer, error){
	"fork":  forkMany,
	"files": openMany,
	"grow":  growFile,
	"alloc": allocate,
	"print": printMuch,
}

// forkMany starts up to N processes and says how many there were.
func forkMany(o op) (answer, error) {
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range o.N {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			return answer{N: int64(len(started))}, err
		}
		started = append(started, cmd)
	}
	time.Sleep(time.Duration(o.M) * time.Millisecond)
	return answer{N: int64(len(started))}, nil
}

// openMany opens up to N descriptors.
func openMany(o op) (answer, error) {
	for i := range o.N {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return answer{N: i}, err
		}
	}
	return answer{N: o.N}, nil
}

// growFile writes up to N bytes to a file, in pieces.
func growFile(o op) (answer, error) {
	signal.Ignore(syscall.SIGXFSZ)
	fd, err := unix.Open(string(o.Path), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return done(err)
	}
	defer unix.Close(fd)
	piece := make([]byte, 4096)
	var n int64
	for n < o.N {
		w, err := unix.Write(fd, piece)
		n += int64(max(w, 0))
		if err != nil {
			return answer{N: n}, err
		}
	}
	return answer{N: n}, nil
}

// allocate uses N bytes of memory for M milliseconds.
func allocate(o op) (answer, error) {
	memory, err := unix.Mmap(-1, 0, int(o.N), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return done(err)
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	time.Sleep(time.Duration(o.M) * time.Millisecond)
	return answer{N: o.N}, unix.Munmap(memory)
}

// printMuch prints N bytes.
func printMuch(o op) (answer, error) {
	line := strings.Repeat("x", 1023) + "\n"
	for n := int64(0); n < o.N; n += int64(len(line)) {
		if _, err := os.Stdout.WriteString(line); err != nil {
			return done(err)
		}
	}
	return answer{}, nil
}
