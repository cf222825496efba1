package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A screen is a terminal with a program in it, and what the program printed.
type screen struct {
	t    *testing.T
	ptm  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
	seen int
	done chan struct{}
}

func newScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	ptm, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 99})
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, ptm: ptm, cmd: cmd, done: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		ptm.Close()
		select {
		case <-s.done:
		case <-time.After(testenv.Patience): // a program that is left holds the terminal
			t.Error("the terminal was not let go")
		}
	})
	return s
}

func (s *screen) read() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := s.ptm.Read(buf)
		s.mu.Lock()
		s.text.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) typ(text string) {
	s.t.Helper()
	if _, err := s.ptm.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits for the text in what was not yet looked at.
func (s *screen) expect(text string) {
	s.t.Helper()
	if testenv.Becomes(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := bytes.Index(s.text.Bytes()[s.seen:], []byte(text))
		if i >= 0 {
			s.seen += i + len(text)
		}
		return i >= 0
	}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Fatalf("%q never came; the screen since the last: %q", text, s.text.Bytes()[s.seen:])
}

// settings are the terminal's, as a program in it finds them.
func (s *screen) settings() unix.Termios {
	s.t.Helper()
	state, err := unix.IoctlGetTermios(int(s.ptm.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *state
}

// raw waits until a program has taken the terminal over: what is typed before
// would go to the shell.
func (s *screen) raw() {
	s.t.Helper()
	testenv.Eventually(s.t, "a program takes the terminal over", func() bool { return s.settings().Lflag&unix.ICANON == 0 })
}

func (s *screen) exit() int {
	s.t.Helper()
	s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func helperCommand(mode, script string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], script)
	cmd.Env = append(os.Environ(), helperEnv+"="+mode)
	return cmd
}

func eachTerminal(t *testing.T, test func(t *testing.T, mode string)) {
	t.Run("bwrap", func(t *testing.T) {
		testenv.Need(t, "bwrap")
		test(t, "bwrap")
	})
	t.Run("none", func(t *testing.T) { test(t, "none") })
}

func TestTerminalSession(t *testing.T) {
	eachTerminal(t, func(t *testing.T, mode string) {
		script := `[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo three terminals; stty size; : </dev/tty && echo controlling
			trap 'stty size' WINCH; trap 'echo interrupted' INT
			while [ "$line" != end ]; do line=; read line && echo "got <$line>"; done; exit 12`
		s := newScreen(t, helperCommand(mode, script))
		before := s.settings()
		s.expect("three terminals")
		s.expect("33 99")
		s.expect("controlling")
		s.typ("hello\r")
		s.expect("got <hello>")
		s.typ("\x03") // reaches the command and nobody else
		s.expect("interrupted")
		if err := pty.Setsize(s.ptm, &pty.Winsize{Rows: 44, Cols: 111}); err != nil {
			t.Fatal(err)
		}
		s.expect("44 111")
		if during := s.settings(); during == before {
			t.Error("the outer terminal was not made raw")
		}
		s.typ("end\r")
		s.expect("got <end>")
		if code := s.exit(); code != 12 {
			t.Errorf("exit code %d", code)
		}
		if after := s.settings(); after != before {
			t.Errorf("the terminal was not restored:\n%+v\n%+v", before, after)
		}
	})
}

// All output arrives, however soon the command ends after it.
func TestTerminalOutputIsDrained(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		for range 10 {
			script := "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"
			s := spec(script)
			if s.Launch.Init {
				s.Launch = bwrapLaunch(script, 0, true)
			}
			s.Terminal = true
			_, out := run(t, s)
			if !strings.HasSuffix(out, "line 1999\r\n") || strings.Count(out, "\n") != 2000 {
				t.Fatalf("%d lines, the end is %q", strings.Count(out, "\n"), out[max(0, len(out)-20):])
			}
		}
	})
}

// Input that is no terminal ends with the end-of-file key.
func TestTerminalWithReader(t *testing.T) {
	testenv.Need(t, "bwrap")
	for input, want := range map[string]string{"": "end", "a\nb\n": "a b end", "a\nb": "a b end"} {
		s := noLimits(bwrapLaunch("stty -echo; cat | tr '\\n' ' '; echo end", 0, true))
		s.Terminal, s.Stdin, s.Timeout = true, strings.NewReader(input), 40*time.Second
		o, out := run(t, s)
		if got := strings.Join(strings.Fields(out), " "); o.ExitCode != 0 || !strings.HasSuffix(strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%q: %+v, output %q", input, o, out)
		}
	}
}

// Standard error stays where it was sent.
func TestTerminalRedirectedError(t *testing.T) {
	testenv.Need(t, "bwrap")
	var out, errs bytes.Buffer
	s := noLimits(bwrapLaunch("echo out; echo error >&2", 0, true))
	s.Terminal, s.Stdout, s.Stderr = true, &out, &errs
	wait(t, begin(t, s))
	if out.String() != "out\r\n" || errs.String() != "error\n" {
		t.Errorf("output %q, error %q", out.String(), errs.String())
	}
}

// Under a shell with job control, Ctrl-Z stops the command and cloche, and fg
// and bg go on with both.
func TestJobControl(t *testing.T) {
	testenv.Need(t, "bwrap", "bash")
	bash := exec.Command("bash", "--norc", "--noediting", "-i")
	bash.Env = append(os.Environ(), "PS1=prompt$ ", helperEnv+"=bwrap", "HELPER="+os.Args[0])
	s := newScreen(t, bash)
	s.expect("prompt$ ")
	before := s.settings()
	s.typ(`"$HELPER" 'echo running; while read line; do echo "got <$line>"; done' ; echo "code $?"` + "\r")
	s.expect("running\r\n")
	for i := range 3 {
		s.typ("\x1a")
		s.expect("Stopped")
		s.expect("prompt$ ")
		if got := s.settings(); got.Lflag != before.Lflag || got.Oflag != before.Oflag {
			t.Errorf("stopped: the terminal is not as it was")
		}
		s.typ("echo she$((1))ll\r")
		s.expect("she1ll")
		s.expect("prompt$ ")
		s.typ("fg\r")
		s.raw()
		s.typ(fmt.Sprintf("again %d\r", i))
		s.expect(fmt.Sprintf("got <again %d>", i))
	}
	s.typ("\x04")
	s.expect("prompt$ ")
	if got := s.settings(); got.Lflag != before.Lflag {
		t.Errorf("at the end the terminal is not as it was")
	}
	s.typ("exit\r")
	s.exit()
}

// awaitStopped waits until the processes of a program that have the text among
// their arguments are stopped.
func awaitStopped(t *testing.T, program, text string) {
	t.Helper()
	testenv.Eventually(t, program+" is stopped", func() bool {
		found, running := 0, 0
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, l := range lines {
			line, _ := os.ReadFile(l)
			if !bytes.HasPrefix(line, []byte(program+"\x00")) || !bytes.Contains(line, []byte(text)) {
				continue
			}
			found++
			if stat, _ := os.ReadFile(filepath.Dir(l) + "/stat"); !bytes.Contains(stat, []byte(") T ")) {
				running++
			}
		}
		return found > 0 && running == 0
	})
}

// A script around cloche is stopped too: it is one job.
func TestJobControlInScript(t *testing.T) {
	testenv.Need(t, "bwrap", "bash")
	bash := exec.Command("bash", "--norc", "--noediting", "-i")
	bash.Env = append(os.Environ(), "PS1=prompt$ ", helperEnv+"=bwrap", "HELPER="+os.Args[0])
	s := newScreen(t, bash)
	s.expect("prompt$ ")
	s.typ(`sh -c '"$HELPER" "echo run""ning; read line; exit 21"; echo "code $?"; exit 22'` + "\r")
	s.expect("running\r\n")
	s.typ("\x1a")
	s.expect("Stopped")
	s.expect("prompt$ ")
	// The shell tells of the script, which may stop before what it has started.
	awaitStopped(t, os.Args[0], "exit 21")
	s.typ("fg\r")
	s.raw()
	s.typ("x\r")
	s.expect("code 21")
	s.expect("prompt$ ")
	s.typ("exit\r")
	s.exit()
}

// Where nobody could continue it, Ctrl-Z does nothing.
func TestCtrlZWhenOrphaned(t *testing.T) {
	eachTerminal(t, func(t *testing.T, mode string) {
		s := newScreen(t, helperCommand(mode, "echo running; while :; do read line && echo \"got <$line>\"; [ \"$line\" = end ] && exit; done"))
		s.expect("running\r\n")
		s.typ("\x1a")
		time.Sleep(100 * time.Millisecond) // a program that stops would do so by now
		s.typ("still\r")
		s.expect("got <still>")
		s.typ("end\r")
		if code := s.exit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// Without a terminal of its own the command still stops and goes on with us.
func TestForwardStop(t *testing.T) {
	eachTerminal(t, func(t *testing.T, mode string) {
		dir := tempDir(t)
		// The command waits for it without starting anything: a shell that has just
		// made a process by vfork cannot stop while that one is stopped.
		if err := unix.Mkfifo(dir+"/end", 0o600); err != nil {
			t.Fatal(err)
		}
		end, err := os.OpenFile(dir+"/end", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		// sh stays the parent in another group of the session: nothing is orphaned.
		cmd := exec.Command("bash", "-mc", `"$HELPER" "$SCRIPT" </dev/null | cat & jobs -p >`+dir+`/pid; wait`)
		testenv.Need(t, "bash")
		cmd.Env = append(os.Environ(), helperEnv+"="+mode, "HELPER="+os.Args[0], "SCRIPT=echo >"+dir+"/ready; read line <"+dir+"/end")
		// Without any terminal bash has no job control: then the test is the parent
		// in another group.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if t.Failed() {
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			}
			_, _ = end.WriteString("\n")
			_ = cmd.Wait()
		}()
		waitFor(t, dir+"/ready")
		var pid int
		b, _ := os.ReadFile(dir + "/pid")
		if _, err := fmt.Sscan(string(b), &pid); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		stopped := func() bool { s, err := readStat(pid); return err == nil && s.state == 'T' }
		testenv.Eventually(t, "cloche is stopped", stopped)
		time.Sleep(50 * time.Millisecond) // a program that goes on would do so by now
		if !stopped() {
			t.Error("it went on by itself")
		}
		unix.Kill(pid, unix.SIGCONT)
	})
}

func TestWants(t *testing.T) {
	ptm, pts, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ptm.Close()
	defer pts.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tt := range []struct {
		mode    TTYMode
		in, out *os.File
		want    bool
	}{
		{TTYAuto, pts, pts, true},
		{TTYAuto, pts, null, false},
		{TTYAuto, null, pts, false},
		{TTYAuto, nil, nil, false},
		{TTYAlways, null, null, true},
		{TTYNever, pts, pts, false},
	} {
		if got := Wants(tt.mode, tt.in, tt.out); got != tt.want {
			t.Errorf("%v: %v", tt.mode, got)
		}
	}
	var m TTYMode
	if err := m.UnmarshalText([]byte("auto")); err != nil || m != TTYAuto {
		t.Errorf("auto: %v %v", m, err)
	}
	if err := m.UnmarshalText([]byte("maybe")); err == nil {
		t.Error("an unknown mode was accepted")
	}
}
