package initprog

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// Descriptors below, between and above those that the init was given do
// not reach the command, and neither do its own.
func TestDescriptorsAreClosed(t *testing.T) {
	for _, keep := range []int{0, 2} {
		c := Config{Processes: None, OpenFiles: None, FileSize: None, KeepFDs: keep}
		c.Path, c.Args = "/bin/ls", []string{"ls", "/proc/self/fd"}
		s := prepare(t, c)
		own := s.cmd.ExtraFiles[keep:]
		null := open(t, os.DevNull)
		s.cmd.ExtraFiles = append(s.cmd.ExtraFiles[:keep:keep], null, null, own[0], null, own[1], null)
		s.cmd.Args[1], s.cmd.Args[2] = fmt.Sprint(3+keep+2), fmt.Sprint(3+keep+4)
		s.start()
		s.record(Started)
		s.record(Exited)
		s.exit()
		// One more is the folder that ls reads.
		if got, want := len(strings.Fields(s.output())), 3+keep+1; got != want {
			t.Errorf("keep %d: descriptors %q, want %d of them", keep, s.output(), want)
		}
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLimits(t *testing.T) {
	testenv.Need(t, "bash")
	c := shell("ulimit -Sn; ulimit -Hn; ulimit -Hf; ulimit -Hc; ulimit -Hu")
	c.Path, c.Args[0] = "/bin/bash", "bash"
	c.OpenFiles, c.FileSize, c.Processes = 37, 1<<20, 200
	s := run(t, c)
	s.record(Started)
	s.record(Exited)
	s.exit()
	if got, want := strings.Fields(s.output()), "37 37 1024 0 200"; strings.Join(got, " ") != want {
		t.Errorf("limits %q, want %q", got, want)
	}
}

// A caller that ignores SIGCHLD or blocks signals passes that on through exec.
func TestSignalStateIsReset(t *testing.T) {
	s := prepare(t, Config{Processes: None, OpenFiles: None, FileSize: None, Path: "/bin/grep", Args: []string{"grep", "^Sig[BI]", "/proc/self/status"}})
	init := s.cmd.Args
	s.cmd.Path = "/bin/sh"
	s.cmd.Args = append([]string{"sh", "-c", `trap '' CHLD USR1 INT PIPE; p=$1; shift; exec "$p" "$@"`, "sh", filepath.Join(filepath.Dir(writeInit(t)), "cloche-init")}, init[1:]...)
	s.start()
	s.record(Started)
	if rec := s.record(Exited); rec.Value != 0 {
		t.Errorf("wait status %#x; output: %s", rec.Value, s.output())
	}
	s.exit()
	for _, line := range strings.Split(strings.TrimSpace(s.output()), "\n") {
		if f := strings.Fields(line); len(f) != 2 || f[1] != "0000000000000000" {
			t.Errorf("signals are not reset: %q", line)
		}
	}
}

// F12: Ctrl-Z and Ctrl-C act on the command as on a terminal of its own.
func TestTerminal(t *testing.T) {
	ptm, pts, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ptm.Close()
	// It forks nothing: a stop between the vfork and the exec of a shell's child
	// leaves the shell waiting in the kernel, on any terminal.
	c := shell("trap 'exit 8' INT; tty; while :; do read x; done")
	c.Terminal = true
	s := prepare(t, c)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = pts, pts, pts
	s.cmd.SysProcAttr.Setsid = true
	s.start()
	pts.Close()
	s.record(Started)
	buf := make([]byte, 100)
	if n, err := ptm.Read(buf); err != nil || !strings.Contains(string(buf[:n]), "/dev/") {
		t.Errorf("tty: %q %v", buf[:n], err)
	}
	child := firstChild(t, s.cmd.Process.Pid)
	for range 3 {
		ptm.Write([]byte{'Z' & 31})
		if rec := s.record(Stopped); rec.Value != int32(unix.SIGTSTP) {
			t.Errorf("stopped by %d", rec.Value)
		}
		if got := foreground(t, ptm); got != s.cmd.Process.Pid {
			t.Errorf("while stopped the foreground group is %d, want the init %d", got, s.cmd.Process.Pid)
		}
		s.cmd.Process.Signal(unix.SIGCONT)
		s.record(Continued)
		testenv.Eventually(t, "the command is in the foreground", func() bool { return foreground(t, ptm) == child })
	}
	stop := repeat(func() { ptm.Write([]byte{'C' & 31}) })
	defer stop()
	if rec := s.record(Exited); rec.Value != 8<<8 {
		t.Errorf("wait status %#x", rec.Value)
	}
	s.exit()
}

// repeat does something until it is stopped. A shell that is interrupted right
// before its read only notes the signal, and reads on.
func repeat(do func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			do()
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { close(done) }
}

func foreground(t *testing.T, f *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestArm64 runs the program of the other architecture, as far as user-mode
// emulation goes: start, report, exit status.
func TestArm64(t *testing.T) {
	testenv.Need(t, "qemu", "qemu-aarch64")
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "init")
	if program, err := os.ReadFile("init_arm64.elf"); err != nil || os.WriteFile(path, program, 0o755) != nil {
		t.Fatal("cannot copy the program", err)
	}
	for _, tt := range []struct {
		script string
		code   int
	}{{"exit 6", 6}, {"kill -TERM $$; sleep 9", 143}} {
		s := prepare(t, shell(tt.script))
		s.cmd.Path, s.cmd.Args = qemu, append([]string{qemu, path}, s.cmd.Args[1:]...)
		s.start()
		s.record(Started)
		s.record(Exited)
		if code := s.exit(); code != tt.code {
			t.Errorf("%q: exit code %d, want %d; output %s", tt.script, code, tt.code, s.output())
		}
	}
}
