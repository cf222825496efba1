//go:build amd64 || arm64

package initprog

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// withProgram prepares an init whose command's process runs a program first, with
// the files given.
func withProgram(t *testing.T, c Config, p *sysprog.Program, files ...*os.File) *sandbox {
	t.Helper()
	c.ProgramFD = 5 + c.KeepFDs // behind the status and the lifeline
	c.ProgramFiles = len(files)
	numbers := make([]int, len(files))
	for i := range numbers {
		numbers[i] = c.ProgramFD + 1 + i
	}
	part, err := sysprog.ExportPart(p, sysprog.ExportOptions{Arch: runtime.GOARCH, Files: numbers})
	if err != nil {
		t.Fatal(err)
	}
	s := prepare(t, c)
	s.cmd.ExtraFiles = append(append(s.cmd.ExtraFiles, contentFile(t, part)), files...)
	return s
}

// contentFile is a sealed file in memory.
func contentFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "program")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// harden is a program that takes privileges, writing and system calls away.
func harden(t *testing.T) *sysprog.Program {
	t.Helper()
	filter, err := seccomp.Filter(seccomp.Options{Arch: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	p := &sysprog.Program{}
	b := p.For(policy.Origin{}, "harden")
	b.NoNewPrivs()
	attr := binary.LittleEndian.AppendUint64(nil, unix.LANDLOCK_ACCESS_FS_MAKE_REG)
	ruleset := b.CallResult("landlock_create_ruleset", sysprog.Bytes(attr, "make_reg"), sysprog.Const(uint64(len(attr))), sysprog.Const(0))
	b.LandlockRestrictSelf(ruleset)
	b.Close(ruleset)
	b.Seccomp(filter, 0)
	return p
}

// status is a line of /proc/PID/status.
func status(t *testing.T, pid int, key string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s", key)
	return ""
}

// W3: the program holds for the command, and not for the init.
func TestProgramConfinesTheCommand(t *testing.T) {
	testenv.Need(t, "landlock", "unshare")
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	s := withProgram(t, shell(fmt.Sprintf("echo x >%s; unshare -n true; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; ls /proc/self/fd; read x", made)), harden(t))
	stop, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	s.cmd.Stdin = stop
	s.start()
	stop.Close()
	s.record(Started)
	testenv.Eventually(t, "the command has tried", func() bool { return strings.Contains(s.output(), "\n2\n") })
	init, command := s.cmd.Process.Pid, firstChild(t, s.cmd.Process.Pid)
	for key, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
		if got := status(t, command, key); got != want {
			t.Errorf("the command has %s %s, want %s", key, got, want)
		}
		if got := status(t, init, key); got != status(t, os.Getpid(), key) {
			t.Errorf("the init has %s %s too", key, got)
		}
	}
	end.Close()
	s.record(Exited)
	if _, err := os.Stat(made); err == nil {
		t.Errorf("the command made a file; output: %s", s.output())
	}
	if !strings.Contains(s.output(), "unshare failed") {
		t.Errorf("the command made a namespace; output: %s", s.output())
	}
	s.exit()
}

// Nothing of the program reaches the command: neither the file it came in, nor
// its own descriptors.
func TestProgramFilesAreGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := &sysprog.Program{}
	p.For(policy.Origin{}, "say").Write(p.AddFile("pipe"), "from the program")
	c := shell("for fd in /proc/self/fd/*; do readlink $fd; done; true")
	c.KeepFDs = 2
	s := withProgram(t, c, p, w)
	s.start()
	w.Close()
	s.record(Started)
	if rec := s.record(Exited); rec.Value != 0 {
		t.Errorf("wait status %#x: %s", rec.Value, s.output())
	}
	text := make([]byte, 100)
	n, err := r.Read(text)
	if got := string(text[:n]); got != "from the program" {
		t.Errorf("the program wrote %q, %v", got, err)
	}
	if out := s.output(); strings.Contains(out, "memfd") || strings.Contains(out, "pipe") {
		t.Errorf("the command has descriptors of the program:\n%s", out)
	}
	s.exit()
}

// A program that fails is reported with its record, and the command does not run.
func TestProgramFails(t *testing.T) {
	build := func(f func(b sysprog.Block)) *sysprog.Program {
		p := &sysprog.Program{}
		b := p.For(policy.Origin{}, "test")
		b.Ignoring(sysprog.ENOENT).Chdir("/no/such")
		f(b)
		return p
	}
	for name, tt := range map[string]struct {
		program *sysprog.Program
		record  int
		errno   unix.Errno
	}{
		"error": {build(func(b sysprog.Block) { b.Chdir("/no/such"); b.Chdir("/") }), 1, unix.ENOENT},
		"result": {build(func(b sysprog.Block) {
			b.Chdir("/")
			b.Read(b.Openat(sysprog.Cwd(), os.DevNull, sysprog.OpenRead, 0), 1)
		}), 3, 0},
	} {
		ran := filepath.Join(t.TempDir(), "ran")
		s := withProgram(t, shell("echo >"+ran), tt.program)
		s.start()
		rec := s.record(ProgramFailed)
		if rec.ProgramRecord() != tt.record || rec.Errno() != tt.errno {
			t.Errorf("%s: record %d, errno %v, want %d, %v", name, rec.ProgramRecord(), rec.Errno(), tt.record, tt.errno)
		}
		if code := s.exit(); code != 125 {
			t.Errorf("%s: exit code %d", name, code)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: the command ran", name)
		}
	}
}

// A file that is no program is refused.
func TestNoProgram(t *testing.T) {
	c := shell("exit 0")
	c.ProgramFD = 5
	s := prepare(t, c)
	s.cmd.ExtraFiles = append(s.cmd.ExtraFiles, contentFile(t, make([]byte, 4096)))
	s.start()
	if rec := s.record(SetupFailed); rec.Step() != StepProgram || rec.Errno() != unix.ENOEXEC {
		t.Errorf("%v: %v", rec.Step(), rec.Errno())
	}
	s.exit()
}
