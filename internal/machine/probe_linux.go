package machine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

// probeTime bounds one trial. No machine needs that long; a trial that times out is
// inconclusive.
const probeTime = 10 * time.Second

// ProbeUserNS makes a user namespace, uses a capability in it, and changes a mount in a
// mount namespace. It ends with ctx and leaves nothing behind.
func ProbeUserNS(ctx context.Context, s *host.Snapshot) host.Probe {
	f := factsOf(s)
	f.tryNamespaces(ctx)
	return classifyUserNS(f)
}

// tryNamespaces sets userNS and mounts.
func (f *facts) tryNamespaces(ctx context.Context) {
	f.nested = nestedUserNS(os.ReadFile)
	argv := trivialCommand()
	if argv == nil {
		return
	}
	// Changing the root folder to itself takes a capability of the new
	// namespace. AppArmor lets an unprivileged process make a namespace and
	// then refuses every capability in it, so making one proves nothing.
	attr := syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		Chroot:      "/",
		UidMappings: []syscall.SysProcIDMap{{ContainerID: f.snapshot.UID, HostID: f.snapshot.UID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: f.snapshot.GID, HostID: f.snapshot.GID, Size: 1}},
	}
	var detail string
	if f.userNS, detail = tryCommand(ctx, argv, attr); f.userNS == worked {
		attr.Unshareflags = syscall.CLONE_NEWNS // Go then makes all mounts private, which is a mount call
		f.mounts, detail = tryCommand(ctx, argv, attr)
	}
	if f.detail == "" {
		f.detail = detail
	}
}

// tryCommand runs a command that does nothing with the given attributes.
func tryCommand(ctx context.Context, argv []string, attr syscall.SysProcAttr) (trial, string) {
	cmd, cancel := probeCommand(ctx, argv, attr)
	defer cancel()
	err := cmd.Run()
	var errno syscall.Errno
	switch {
	case err == nil:
		return worked, ""
	case errors.As(err, &errno):
		return trialOf(errno), errno.Error()
	default:
		return unsure, err.Error()
	}
}

// trialOf returns the outcome for the errno of a clone, unshare, mount or chroot.
func trialOf(errno syscall.Errno) trial {
	switch errno {
	case unix.EPERM, unix.EACCES, unix.EROFS:
		return refused
	case unix.ENOSPC, unix.EUSERS: // EUSERS before Linux 4.9
		return exhausted
	case unix.EINVAL, unix.ENOSYS: // without CONFIG_USER_NS; by a seccomp filter
		return absent
	default:
		return unsure
	}
}

// probeCommand prepares a command with an empty environment, in its own process group.
// The whole group is killed when ctx ends: otherwise bwrap's child would block forever
// if bwrap died just after starting it. For the same reason there is no parent-death
// signal, which would kill only bwrap. If cloche itself is killed, the trial ends by
// itself after a moment.
func probeCommand(ctx context.Context, argv []string, attr syscall.SysProcAttr) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	attr.Setpgid = true
	cmd.SysProcAttr = &attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd, cancel
}

// trivialCommand returns a command that does nothing and succeeds, or nil.
func trivialCommand() []string {
	for _, argv := range [][]string{
		{"/bin/true"},
		{"/usr/bin/true"},
		{"/run/current-system/sw/bin/true"},
		{"/run/current-system/profile/bin/true"},
		{"/bin/busybox", "true"},
		{"/bin/sh", "-c", ":"},
	} {
		if unix.Access(argv[0], unix.X_OK) == nil {
			return argv
		}
	}
	return nil
}

// nestedUserNS reports whether the caller is in a user namespace other than the initial
// one, which is the only one that maps all ids.
func nestedUserNS(read reader) bool {
	text, err := read("/proc/self/uid_map")
	return err == nil && !slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"})
}

func noNewPrivs() bool {
	v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && v == 1
}

// ProbeBwrap describes the snapshot's bwrap, and makes a sandbox with the same parts as
// real ones: every kind of namespace, the host's root read-only, its own /proc, /dev
// and a tmpfs. It ends with ctx and leaves nothing behind.
//
// The outcome is Unknown if the trial could not be finished; such an answer must not be
// remembered.
func ProbeBwrap(ctx context.Context, s *host.Snapshot) host.Bwrap {
	f := factsOf(s)
	b := &f.snapshot.Bwrap
	*b = host.Bwrap{Path: s.Bwrap.Path}
	if b.Path != "" {
		f.noNewPrivs = noNewPrivs()
		f.describe(ctx, b)
		if f.sandbox != absent && len(f.lacks) == 0 {
			b.MapRoot = f.tryBwrap(ctx, b.Path)
		}
	}
	if f.sandbox == refused {
		f.tryNamespaces(ctx)
	}
	b.Probe = classifyBwrap(f)
	return *b
}

// describe sets the version and the options.
func (f *facts) describe(ctx context.Context, b *host.Bwrap) {
	b.Setuid = isSetuid(b.Path)
	version, err := output(ctx, b.Path, "--version")
	if err != nil {
		f.sandbox, f.detail = startTrial(err), err.Error()
	}
	b.Version = parseBwrapVersion(version)
	help, err := output(ctx, b.Path, "--help")
	if err != nil {
		f.sandbox, f.detail = startTrial(err), err.Error()
		return
	}
	b.Features, f.lacks = parseBwrapOptions(help)
}

// startTrial returns the outcome for an error of starting a program.
func startTrial(err error) trial {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return unsure
	}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ENOEXEC, unix.ELOOP, unix.EISDIR:
		return absent
	default:
		return unsure
	}
}

// output runs a program and returns what it prints.
func output(ctx context.Context, argv ...string) (string, error) {
	cmd, cancel := probeCommand(ctx, argv, syscall.SysProcAttr{})
	defer cancel()
	out := &boundedBuffer{limit: 64 << 10}
	cmd.Stdout = out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil // it ran; the parser decides about its output
	}
	return out.String(), err
}

// tryBwrap makes a sandbox and sets sandbox and detail. For root it first tries to map
// all ids, and returns whether that worked.
func (f *facts) tryBwrap(ctx context.Context, path string) (mapRoot bool) {
	payload := trivialCommand()
	if payload == nil {
		return false
	}
	if f.snapshot.UID == 0 {
		attr := syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                everyID(),
			GidMappings:                everyID(),
			GidMappingsEnableSetgroups: true,
		}
		if t, _ := trySandbox(ctx, path, nil, payload, attr); t == worked {
			f.sandbox = worked
			return true
		}
	}
	f.sandbox, f.detail = trySandbox(ctx, path, []string{"--unshare-user"}, payload, syscall.SysProcAttr{})
	return false
}

// everyID maps all ids to themselves. The last one, 2³²-1, means "no id".
func everyID() []syscall.SysProcIDMap {
	size := int64(math.MaxUint32)
	return []syscall.SysProcIDMap{{Size: int(size)}}
}

// statusFD is the descriptor that the first entry of exec.Cmd's ExtraFiles gets.
const statusFD = "3"

// trySandbox runs the payload in a sandbox of bwrap.
func trySandbox(ctx context.Context, path string, first, payload []string, attr syscall.SysProcAttr) (trial, string) {
	r, w, err := os.Pipe()
	if err != nil {
		return unsure, err.Error()
	}
	defer r.Close()
	argv := slices.Concat([]string{path}, first, []string{
		"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
		"--json-status-fd", statusFD,
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
		"--chdir", "/", "--",
	}, payload)
	cmd, cancel := probeCommand(ctx, argv, attr)
	defer cancel()
	stderr := &boundedBuffer{limit: 1 << 10}
	cmd.Stderr = stderr
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Run()
	w.Close()
	return judgeSandbox(err, r, stderr.String())
}

// judgeSandbox returns the outcome from bwrap's exit and its status report.
func judgeSandbox(err error, status *os.File, stderr string) (trial, string) {
	var errno syscall.Errno
	var exit *exec.ExitError
	switch {
	case errors.As(err, &errno): // not even started
		if t := startTrial(err); t == absent {
			return t, err.Error()
		}
		return trialOf(errno), err.Error()
	case err != nil && (!errors.As(err, &exit) || !exit.Exited()): // a timeout, or killed
		return unsure, err.Error()
	}
	// Read with a deadline: something may still keep the other end of the pipe open.
	if status.SetReadDeadline(time.Now().Add(time.Second)) != nil {
		return unsure, "the status pipe has no deadline"
	}
	code, reported := bwrapExitCode(io.LimitReader(status, 64<<10))
	switch {
	case !reported:
		return refused, oneLine(stderr)
	case code != 0 || err != nil:
		return unsure, "a program that does nothing failed in the sandbox"
	default:
		return worked, ""
	}
}

// oneLine returns an error text as part of a sentence.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.TrimSpace(text), func(r rune) bool { return r == '\n' || r < ' ' }), "; ")
}

// A boundedBuffer keeps the first bytes that are written to it.
type boundedBuffer struct {
	buf   bytes.Buffer
	limit int
}

// Write implements io.Writer. It accepts everything and keeps what fits.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.buf.Write(p[:min(len(p), b.limit-b.buf.Len())])
	return len(p), nil
}

// String returns what was kept.
func (b *boundedBuffer) String() string { return b.buf.String() }
