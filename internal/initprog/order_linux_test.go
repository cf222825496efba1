package initprog

import (
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// awaiting starts an init that waits for its command, and returns it with our end
// of the socket.
func awaiting(t *testing.T) (*sandbox, int) { return awaitingWith(t, false) }

func awaitingWith(t *testing.T, become bool) (*sandbox, int) {
	t.Helper()
	s := prepare(t, Config{Processes: None, OpenFiles: 50, FileSize: None, Await: true, Become: become})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.status.Close()
	s.ends[0].Close()
	s.status, s.ends[0] = os.NewFile(uintptr(pair[0]), "status"), os.NewFile(uintptr(pair[1]), "status")
	s.cmd.ExtraFiles[0] = s.ends[0]
	s.start()
	return s, pair[0]
}

// send hands an order over, with the file as all three standard descriptors.
func send(t *testing.T, socket int, o Order, f *os.File) {
	t.Helper()
	fd := int(f.Fd())
	o.Streams = 7
	sendWith(t, socket, o, fd, fd, fd)
}

func sendWith(t *testing.T, socket int, o Order, fds ...int) {
	t.Helper()
	text, rights := o.Bytes(), []byte(nil)
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for len(text) > 0 {
		n, err := unix.SendmsgN(socket, text, rights, nil, unix.MSG_NOSIGNAL)
		if err != nil {
			t.Fatal(err)
		}
		text, rights = text[n:], nil
	}
}

// N10: an init that waits runs the command that comes, with its arguments, its
// environment, its folder, its streams and the limits that it was started with.
func TestOrder(t *testing.T) {
	s, socket := awaiting(t)
	long := strings.Repeat("x", 1<<17-10) // more than a socket holds, with the others
	var env []string
	for i := range 8 {
		env = append(env, fmt.Sprintf("V%d=%s", i, long))
	}
	script := `pwd; echo "$0|$1|${#V0}|${#V7}|$HOME"; ulimit -n; ls /proc/self/fd | wc -l`
	send(t, socket, Order{Dir: "/proc", Path: "/bin/sh", Args: []string{"sh", "-c", script, "a b", ""}, Env: env}, s.out)
	s.record(Started)
	if rec := s.record(Exited); rec.Value != 0 {
		t.Errorf("wait status %#x", rec.Value)
	}
	s.exit()
	want := fmt.Sprintf("/proc\na b||%d|%d|\n50\n4\n", len(long), len(long))
	if got := s.output(); got != want {
		t.Errorf("it said %q, want %q", got, want)
	}
}

// N10: a stream that does not come with the order is what the init was started with.
func TestOrderStreams(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	for streams, want := range map[uint32]string{0: "/dev/null\nFILE\n", 1: "/dev/zero\nFILE\n", 2: "/dev/null\n/dev/zero\n", 3: "/dev/zero\n/dev/zero\n"} {
		s, socket := awaiting(t)
		script := `readlink /proc/self/fd/0 >&2; readlink /proc/self/fd/5 5>&1 >&2`
		fds := []int{int(zero.Fd()), int(zero.Fd())}[:bits.OnesCount32(streams)]
		sendWith(t, socket, Order{Dir: "/", Path: "/bin/sh", Args: []string{"sh", "-c", script}, Streams: streams}, fds...)
		s.record(Started)
		s.record(Exited)
		s.exit()
		if got, want := s.output(), strings.ReplaceAll(want, "FILE", s.out.Name()); got != want {
			t.Errorf("streams %b: it said %q, want %q", streams, got, want)
		}
	}
}

// An order that comes with other descriptors than it says is none.
func TestOrderStreamsMissing(t *testing.T) {
	for streams, n := range map[uint32]int{0: 1, 7: 2, 1: 0, 8: 1} {
		s, socket := awaiting(t)
		fds := []int{int(s.out.Fd()), int(s.out.Fd())}
		sendWith(t, socket, Order{Dir: "/", Path: "/bin/true", Args: []string{"true"}, Streams: streams}, fds[:n]...)
		if rec := s.record(SetupFailed); rec.Errno() != unix.EBADMSG || rec.Step() != StepOrder {
			t.Errorf("streams %b with %d descriptors: %v at %v", streams, n, rec.Errno(), rec.Step())
		}
		_ = s.cmd.Wait() // with a status of its own
	}
}

// An order that cannot be carried out is reported.
func TestOrderFails(t *testing.T) {
	for _, tt := range []struct {
		order Order
		want  RecordType
		step  Step
		errno unix.Errno
	}{
		{Order{Dir: "/missing", Path: "/bin/true", Args: []string{"true"}}, SetupFailed, StepFolder, unix.ENOENT},
		{Order{Dir: "/", Path: "/missing", Args: []string{"missing"}}, ExecFailed, 0, unix.ENOENT},
	} {
		s, socket := awaiting(t)
		send(t, socket, tt.order, s.out)
		rec := s.record(tt.want)
		if rec.Errno() != tt.errno || rec.Type == SetupFailed && rec.Step() != tt.step {
			t.Errorf("%+v: %v at %v", tt.order, rec.Errno(), rec.Step())
		}
		_ = s.cmd.Wait() // with another status for each
	}
}

// An init that is not needed, or whose supervisor is gone, ends.
func TestOrderNeverComes(t *testing.T) {
	for name, close := range map[string]func(*sandbox){
		"socket":   func(s *sandbox) { s.status.Close() },
		"lifeline": func(s *sandbox) { s.lifeline.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := awaiting(t)
			close(s)
			_ = s.cmd.Wait() // it returns
		})
	}
}

// N10: an init that becomes its command is that process: the same number, nothing
// left open, no signal blocked, and its end is the command's. A signal that came
// before the order does nothing to it.
func TestOrderBecomes(t *testing.T) {
	s, socket := awaitingWith(t, true)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGUSR1, unix.SIGCONT} {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	script := `echo $$; ls /proc/self/fd | wc -l; grep -E '^(SigBlk|SigIgn)' /proc/self/status; exit 7`
	send(t, socket, Order{Dir: "/proc", Path: "/bin/sh", Args: []string{"sh", "-c", script}}, s.out)
	if rec, err := ReadRecord(s.status); err != io.EOF {
		t.Errorf("it reported %+v, %v", rec, err)
	}
	_ = s.cmd.Wait() // with the status of the command
	if code := s.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("it ended with %d", code)
	}
	if got, want := s.output(), "1\n4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"; got != want {
		t.Errorf("it said %q, want %q", got, want)
	}
}

// One that cannot be executed is reported.
func TestOrderBecomesNothing(t *testing.T) {
	s, socket := awaitingWith(t, true)
	send(t, socket, Order{Dir: "/", Path: "/missing", Args: []string{"missing"}}, s.out)
	if rec := s.record(ExecFailed); rec.Errno() != unix.ENOENT {
		t.Errorf("%v", rec.Errno())
	}
	_ = s.cmd.Wait() // with a status of its own
}
