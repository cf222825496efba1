package backendtest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/prober"
)

// operations are the operations that the probe has in addition to those of package
// prober.
var operations = prober.Table{
	// Files.
	"lstat":    lstat,
	"truncate": func(o op) (prober.Answer, error) { return fail(unix.Truncate(string(o.Path), o.N)) },
	"utime":    func(o op) (prober.Answer, error) { return fail(unix.Utime(string(o.Path), &unix.Utimbuf{})) },

	// Processes, variables and descriptors.
	"processes": func(op) (prober.Answer, error) { return readProc("cmdline") },
	"environs":  func(op) (prober.Answer, error) { return readProc("environ") },
	"environ":   func(op) (prober.Answer, error) { return prober.Answer{List: prober.Texts(os.Environ())}, nil },
	"fds":       listDescriptors,
	"readfd":    func(o op) (prober.Answer, error) { return readAll(os.NewFile(uintptr(o.N), "file")) },
	"stdin":     func(op) (prober.Answer, error) { return readAll(os.Stdin) },
	"cwd":       workingFolder,
	"daemon":    startDaemon,
	"detach":    detach,
	"heartbeat": heartbeat,
	"sleep":     func(o op) (prober.Answer, error) { time.Sleep(time.Duration(o.N) * time.Millisecond); return fail(nil) },
	"say":       func(o op) (prober.Answer, error) { _, err := os.Stdout.WriteString(string(o.Data)); return fail(err) },
	"await":     func(o op) (prober.Answer, error) { return fail(awaitFile(string(o.Path))) },

	// Sockets and ways out of a network.
	"connectfd": connectByDescriptor,
	"send":      sendDatagrams,
	"talk":      talk,
	"socket":    makeSocket,
	"netlink":   askNetlink,
	"setns":     joinNamespace,
	"ping":      ping,

	// The kernel.
	"mq_open":   openQueue,
	"keysearch": searchKey,

	// Limits. These use up a resource, up to a limit of their own.
	"fork":  forkMany,
	"files": openMany,
	"grow":  growFile,
	"alloc": allocate,
	"print": printMuch,
}

// exit ends the process at once. In a program with the race detector os.Exit first
// sleeps for a second, to wait for reports.
func exit(code int) { unix.Exit(code) }

func fail(err error) (prober.Answer, error) { return prober.Answer{}, err }

func bytePointer(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// self returns a command that runs this program again with another attempt.
func self(o op) *exec.Cmd {
	return exec.Command("/proc/self/exe", probeWord, token, opList([]op{o}))
}

func lstat(o op) (prober.Answer, error) {
	var st unix.Stat_t
	err := unix.Lstat(string(o.Path), &st)
	return prober.Answer{N: int64(st.Mode)}, err
}

func readAll(f *os.File) (prober.Answer, error) {
	data, err := io.ReadAll(f)
	return prober.Answer{Data: text(data)}, err
}

// readProc reads one file of every visible process.
func readProc(name string) (prober.Answer, error) {
	files, err := filepath.Glob("/proc/[0-9]*/" + name)
	a := prober.Answer{}
	for _, f := range files {
		if content, err := os.ReadFile(f); err == nil {
			a.List = append(a.List, text(content))
		}
	}
	return a, err
}

// listDescriptors lists the open descriptors above 2, except those of the Go runtime.
func listDescriptors(op) (prober.Answer, error) {
	a := prober.Answer{}
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

// ofRuntime reports whether the Go runtime opened a file: its poller, and the files
// that say how many processors it may use.
func ofRuntime(target string) bool {
	return strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/sys/fs/cgroup/")
}

func workingFolder(op) (prober.Answer, error) {
	buf := make([]byte, 2*unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil {
		return fail(err)
	}
	return prober.Answer{Data: text(buf[:n-1])}, nil
}

// startDaemon starts a process that leaves its parents, its session and its process
// group, ignores signals, and keeps writing to a file.
func startDaemon(o op) (prober.Answer, error) {
	cmd := self(op{Do: "detach", Path: o.Path})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return fail(err)
	}
	return fail(awaitFile(string(o.Path)))
}

func detach(o op) (prober.Answer, error) {
	cmd := self(op{Do: "heartbeat", Path: o.Path})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return fail(cmd.Start())
}

// heartbeat writes to a file again and again, for at most a minute.
func heartbeat(o op) (prober.Answer, error) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	for i := range 3000 {
		if err := os.WriteFile(string(o.Path), []byte(strconv.Itoa(i)), 0o644); err != nil {
			return fail(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return prober.Answer{}, nil
}

// awaitTime bounds the wait for an action of another process.
const awaitTime = 30 * time.Second

func awaitFile(p string) error {
	for end := time.Now().Add(awaitTime); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(p); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s did not appear", p)
}

// connectByDescriptor opens Path without reading it, and connects to the socket behind
// the descriptor.
func connectByDescriptor(o op) (prober.Answer, error) {
	fd, err := unix.Open(string(o.Path), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	return prober.Try(dial(fmt.Sprintf("/proc/self/fd/%d", fd)), nil), nil
}

// sendDatagrams sends to the unix datagram socket at Path without connecting, with
// every call and from every type of socket that can. It succeeds if one of them does.
func sendDatagrams(o op) (prober.Answer, error) {
	to := &unix.SockaddrUnix{Name: string(o.Path)}
	var first error
	note := func(err error) {
		if first == nil || err == nil {
			first = err
		}
	}
	for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_RAW} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			note(err)
			continue
		}
		defer unix.Close(fd)
		note(unix.Sendto(fd, []byte("x"), 0, to))
		note(unix.Sendmsg(fd, []byte("x"), nil, to, 0))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		note(err)
		return fail(first)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	err = unix.Sendto(pair[0], []byte("x"), 0, to)
	if n, _, e := unix.Recvfrom(pair[1], make([]byte, 1), unix.MSG_DONTWAIT); e == nil && n == 1 {
		err = errOwnPair
	}
	note(err)
	return fail(first)
}

// errOwnPair means that data for another socket arrived at the other end of the pair
// instead.
var errOwnPair = fmt.Errorf("%w: the pair keeps it", unix.EACCES)

// talk listens at To, and starts another process inside that connects to it.
func talk(o op) (prober.Answer, error) {
	l, err := net.Listen(string(o.Path), string(o.To))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = l.Close() }()
	go greet(l, string(o.Data))
	out, err := self(dialIn(string(o.Path), l.Addr().String())).Output()
	if err != nil {
		return fail(err)
	}
	var answers []prober.Answer
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != 1 {
		return fail(fmt.Errorf("the other process said %q: %w", out, err))
	}
	return answers[0], nil
}

// greet sends a greeting to every client.
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

// makeSocket makes a socket of the family N; M has its type and protocol.
func makeSocket(o op) (prober.Answer, error) {
	fd, err := unix.Socket(int(o.N), int(o.M>>16), int(o.M&0xffff))
	if err != nil {
		return fail(err)
	}
	return fail(unix.Close(fd))
}

// askNetlink sends Data to the kernel's routing interface and returns the answer.
func askNetlink(o op) (prober.Answer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, []byte(o.Data), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fail(err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, unix.MSG_DONTWAIT)
	if err != nil {
		return fail(err)
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return fail(errors.New("the kernel did not say whether it worked"))
	}
	if errno := -int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); errno != 0 {
		return fail(unix.Errno(errno))
	}
	return prober.Answer{}, nil
}

// joinNamespace joins the namespace at Path, on a thread that ends afterwards.
func joinNamespace(o op) (prober.Answer, error) {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Open(string(o.Path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, int(o.N))
			unix.Close(fd)
		}
		result <- err
	}()
	return fail(<-result)
}

// ping sends an echo request to To with an unprivileged socket, and waits for the
// answer.
func ping(o op) (prober.Answer, error) {
	ip := net.ParseIP(string(o.To))
	family, protocol, request := unix.AF_INET, unix.IPPROTO_ICMP, []byte{8, 0, 0, 0, 0, 0, 0, 1}
	var to unix.Sockaddr
	if v4 := ip.To4(); v4 != nil {
		to = &unix.SockaddrInet4{Addr: [4]byte(v4)}
	} else {
		family, protocol, request[0] = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128
		to = &unix.SockaddrInet6{Addr: [16]byte(ip)}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval((200 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return fail(err)
	}
	if err := unix.Connect(fd, to); err != nil {
		return fail(err)
	}
	if _, err := unix.Write(fd, request); err != nil {
		return fail(err)
	}
	reply := make([]byte, 1500)
	_, err = unix.Read(fd, reply)
	return fail(err)
}

func openQueue(o op) (prober.Answer, error) {
	name, err := unix.ByteSliceFromString(string(o.Path))
	if err != nil {
		return fail(err)
	}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, bytePointer(name), uintptr(unix.O_RDWR|o.N), 0o600, 0, 0, 0)
	if errno != 0 {
		return fail(errno)
	}
	return fail(unix.Close(int(fd)))
}

func searchKey(o op) (prober.Answer, error) {
	_, err := unix.KeyctlSearch(int(o.N), "user", string(o.Path), 0)
	return fail(err)
}

// forkMany starts up to N processes, and returns how many it could start.
func forkMany(o op) (prober.Answer, error) {
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
			return prober.Answer{N: int64(len(started))}, err
		}
		started = append(started, cmd)
	}
	time.Sleep(time.Duration(o.M) * time.Millisecond)
	return prober.Answer{N: int64(len(started))}, nil
}

// openMany opens up to N descriptors.
func openMany(o op) (prober.Answer, error) {
	for i := range o.N {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return prober.Answer{N: i}, err
		}
	}
	return prober.Answer{N: o.N}, nil
}

// growFile writes up to N bytes to a file, in pieces.
func growFile(o op) (prober.Answer, error) {
	signal.Ignore(syscall.SIGXFSZ)
	fd, err := unix.Open(string(o.Path), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	piece := make([]byte, 4096)
	var n int64
	for n < o.N {
		w, err := unix.Write(fd, piece)
		n += int64(max(w, 0))
		if err != nil {
			return prober.Answer{N: n}, err
		}
	}
	return prober.Answer{N: n}, nil
}

// allocate uses N bytes of memory for M milliseconds.
func allocate(o op) (prober.Answer, error) {
	memory, err := unix.Mmap(-1, 0, int(o.N), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fail(err)
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	time.Sleep(time.Duration(o.M) * time.Millisecond)
	return prober.Answer{N: o.N}, unix.Munmap(memory)
}

// printMuch prints N bytes.
func printMuch(o op) (prober.Answer, error) {
	line := strings.Repeat("x", 1023) + "\n"
	for n := int64(0); n < o.N; n += int64(len(line)) {
		if _, err := os.Stdout.WriteString(line); err != nil {
			return fail(err)
		}
	}
	return prober.Answer{}, nil
}
