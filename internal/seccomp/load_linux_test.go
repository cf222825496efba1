//go:build linux && (amd64 || arm64)

package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary starts itself again to load a filter, because a filter
// cannot be taken off. childEnv holds a childJob.
const childEnv = "CLOCHE_SECCOMP_TEST_CHILD"

// A childJob is what the child does: load the filter for Options, if there are
// any, then execute Argv, or make the probes and print their results; Listen is
// for those with a listener.
type childJob struct {
	Options *Options
	Argv    []string
	Listen  bool
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(99)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(text string) error {
	var job childJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	os.Unsetenv(childEnv)
	runtime.LockOSThread()
	if job.Listen {
		return runNotifyProbes(*job.Options)
	}
	if job.Argv == nil {
		return runProbes(job.Options)
	}
	path, err := exec.LookPath(job.Argv[0])
	if err != nil {
		return err
	}
	if err := load(job.Options); err != nil {
		return err
	}
	return syscall.Exec(path, job.Argv, os.Environ())
}

// load puts the filter for o on all threads of the process; nil is no filter.
func load(o *Options) error {
	if o == nil {
		return nil
	}
	code, err := Filter(*o)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(code) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&code[0]))}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(code)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// A result is how a child ended.
type result struct {
	stdout, stderr string
	code           int            // exit status, -1 for a signal
	signal         syscall.Signal // 0 for none
}

// child runs the job in an empty folder, in a session of its own so that
// nothing it does reaches the terminal of the test.
func child(t *testing.T, job childJob) result {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(self)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "HOME="+dir, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		r.signal = status.Signal()
	}
	return r
}
