package machine_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
)

func collect(t *testing.T) *host.Snapshot {
	t.Helper()
	s, err := machine.Collect("")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// with is a snapshot whose bwrap is at a path.
func with(t *testing.T, bwrap string) *host.Snapshot {
	t.Helper()
	s := collect(t)
	s.Bwrap = host.Bwrap{Path: bwrap}
	return s
}

// A11 F2 N4
func TestProbeAllLive(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "bwrap", "userns")
	s := collect(t)
	machine.ProbeAll(t.Context(), s)
	if s.Namespaces.User.Outcome != host.Yes {
		t.Errorf("user namespaces: %+v", s.Namespaces.User)
	}
	b := s.Bwrap
	if b.Probe.Outcome != host.Yes || b.Version == "" || !b.Has("json-status-fd") || !b.Has("unshare-user") {
		t.Errorf("bwrap: %+v", b)
	}
	if b.MapRoot && os.Getuid() != 0 {
		t.Error("an ordinary user has every id mapped")
	}
	if b.Has("no-such-option") {
		t.Error("it has an option that there is not")
	}
}

func TestFactsLive(t *testing.T) {
	s := collect(t)
	var u syscall.Sysinfo_t
	if err := syscall.Sysinfo(&u); err != nil {
		t.Fatal(err)
	}
	if s.MemoryTotal != int64(u.Totalram)*int64(u.Unit) || s.MemoryTotal <= 0 {
		t.Errorf("memory %d", s.MemoryTotal)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if s.Kernel != strings.TrimSpace(string(release)) {
		t.Errorf("kernel %q, want %q", s.Kernel, release)
	}
	if (s.Landlock.ABI > 0) == (s.Landlock.Reason != "") {
		t.Errorf("Landlock: %+v", s.Landlock)
	}
}

// The working folder is the real one, whatever PWD says.
func TestWorkingFolderLive(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "link")) // sets PWD as well
	if s := collect(t); s.Cwd != filepath.Join(dir, "real") {
		t.Errorf("working folder %q", s.Cwd)
	}
}

func TestSocketsLive(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var want []string
	for _, name := range []string{"plain", "with  spaces ", "new\nline", "bytes\xff"} {
		p := filepath.Join(dir, name)
		l, err := net.Listen("unix", p)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		want = append(want, p)
	}
	got := collect(t).Sockets
	for _, p := range want {
		if !slices.Contains(got, p) {
			t.Errorf("%q is not in %q", p, got)
		}
	}
}

// fakeBwrap writes a bwrap that describes itself like a real one and then runs
// the shell text.
func fakeBwrap(t *testing.T, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bwrap")
	text := "#!/bin/sh\ncase $1 in\n--version) echo bubblewrap 9.9.9; exit;;\n--help) cat <<'EOF'\n"
	for _, o := range []string{
		"args", "as-pid-1", "die-with-parent", "json-status-fd", "new-session", "ro-bind-data",
		"seccomp", "unshare-cgroup", "unshare-user", "bind-fd",
	} {
		text += "    --" + o + " X  text\n"
	}
	text += "EOF\nexit;;\nesac\n" + body + "\n"
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

const workingBody = `echo '{ "child-pid": 2 }' >&3; echo '{ "exit-code": 0 }' >&3`

// F2: only a sandbox that was really made is a yes.
func TestProbeBwrapVerdicts(t *testing.T) {
	testenv.AlsoAsUser(t)
	userns := machine.ProbeUserNS(t.Context(), collect(t)).Outcome == host.Yes
	tests := []struct {
		name, body string
		want       host.Outcome
	}{
		{"made", workingBody, host.Yes},
		{"exit status alone", "exit 0", host.No},
		{"kind words", "echo sandbox ready; echo sandbox ready >&2; exit 0", host.No},
		{"made, command failed", `echo '{ "exit-code": 1 }' >&3; exit 1`, host.Unknown},
		{"lies about the exit", `echo '{ "exit-code": 0 }' >&3; exit 1`, host.Unknown},
		{"killed", "kill -9 $$", host.Unknown},
		{"set-up failed", "echo 'bwrap: out of luck' >&2; exit 1", host.No},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == host.No && !userns {
				t.Skip("without user namespaces here the cause is another")
			}
			b := machine.ProbeBwrap(t.Context(), with(t, fakeBwrap(t, tt.body)))
			if b.Probe.Outcome != tt.want || b.Version != "9.9.9" || !b.Has("bind-fd") {
				t.Errorf("got %+v, want %v", b, tt.want)
			}
			if tt.want == host.No && b.Probe.Cause != cause.Mount {
				t.Errorf("cause %q where user namespaces work", b.Probe.Cause)
			}
		})
	}
}

// A11
func TestProbeBwrapMissing(t *testing.T) {
	notExecutable := fakeBwrap(t, workingBody)
	if err := os.Chmod(notExecutable, 0o600); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(old, []byte("#!/bin/sh\necho bubblewrap 0.1.0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		cause      string
	}{
		{"no path", "", cause.Missing},
		{"no file", filepath.Join(t.TempDir(), "bwrap"), cause.Missing},
		{"a folder", t.TempDir(), cause.Missing},
		{"not executable", notExecutable, cause.Missing},
		{"too old", old, cause.TooOld},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := machine.ProbeBwrap(t.Context(), with(t, tt.path)).Probe
			if p.Outcome != host.No || p.Cause != tt.cause || p.Fix == "" || !strings.Contains(p.Reason, tt.path) {
				t.Errorf("got %+v, want cause %q", p, tt.cause)
			}
		})
	}
}

// A trial sees nothing of the caller's environment.
func TestProbeBwrapEnvironment(t *testing.T) {
	t.Setenv("CLOCHE_TEST_SECRET", "hunter2")
	seen := filepath.Join(t.TempDir(), "seen")
	machine.ProbeBwrap(t.Context(), with(t, fakeBwrap(t, "/usr/bin/env > "+seen+"; "+workingBody)))
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "HOME=") {
		t.Errorf("the trial saw %q", text)
	}
}

// running returns the processes that execute the file, or hold it as a script.
func running(t *testing.T, file string) []string {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range entries {
		exe, _ := os.Readlink(p + "/exe")
		argv, _ := os.ReadFile(p + "/cmdline")
		if exe == file || strings.Contains(string(argv), file) {
			found = append(found, filepath.Base(p))
		}
	}
	return found
}

// gone waits for the end of all processes of a file.
func gone(t *testing.T, file string) {
	t.Helper()
	var left []string
	if !testenv.Becomes(func() bool { left = running(t, file); return len(left) == 0 }) {
		t.Errorf("processes %v are left", left)
	}
}

// A probe ends with its context, is then inconclusive, and takes all with it.
func TestProbeBwrapCanceled(t *testing.T) {
	testenv.AlsoAsUser(t)
	file := fakeBwrap(t, "sh -c 'sleep 600; : "+t.TempDir()+"' & wait")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if b := machine.ProbeBwrap(ctx, with(t, file)); b.Probe.Outcome != host.Unknown {
		t.Errorf("got %+v", b.Probe)
	}
	gone(t, file)
}

// Cut off at any moment, a probe of the real bwrap leaves no process and never
// says no.
func TestProbeBwrapCutOff(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "bwrap")
	real := collect(t).Bwrap.Path
	data, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bwrap-copy")
	if err := os.WriteFile(file, data, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*300*time.Microsecond)
		if b := machine.ProbeBwrap(ctx, with(t, file)); b.Probe.Outcome == host.No {
			t.Errorf("cut off after %d steps: %+v", i, b.Probe)
		}
		cancel()
	}
	gone(t, file)
}

const confinedVariable = "CLOCHE_TEST_CONFINED"

// A11: the kernel itself refuses, in a user namespace whose limit is 0.
func TestProbeRefusedBySysctl(t *testing.T) {
	if os.Getenv(confinedVariable) != "" {
		probeWithoutNamespaces(t)
		return
	}
	testenv.Need(t, "userns", "bwrap")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestProbeRefusedBySysctl$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), confinedVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	switch {
	case strings.Contains(string(out), "--- SKIP: TestProbeRefusedBySysctl "):
		t.Skip("the limit cannot be set in a namespace here")
	case err != nil || !strings.Contains(string(out), "--- PASS: TestProbeRefusedBySysctl "):
		t.Errorf("in the namespace: %v", err)
	}
}

func probeWithoutNamespaces(t *testing.T) {
	const limit = "/proc/sys/user/max_user_namespaces"
	if err := os.WriteFile(limit, []byte("0"), 0); err != nil {
		if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	s := collect(t)
	machine.ProbeAll(t.Context(), s)
	if s.Namespaces.MaxUser != 0 {
		t.Errorf("the limit is %d", s.Namespaces.MaxUser)
	}
	if p := s.Namespaces.User; p.Outcome != host.No || p.Cause != cause.UserNSSysctl {
		t.Errorf("user namespaces: %+v", p)
	}
	// Root of a namespace needs no further one, unless one is asked for.
	if p := s.Bwrap.Probe; p.Outcome != host.No || p.Cause != cause.UserNSSysctl {
		t.Errorf("bwrap: %+v", p)
	}
}
