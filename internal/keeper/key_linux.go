package keeper

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Key is the pid of an agent, and a hash of everything that a command inherits from the process of cloche that starts it, and that decides on its
// policy, except for what a [Call] has.
type Key string

// inheritedStatus are the lines of /proc/self/status that a command inherits.
var inheritedStatus = []string{
	"Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
	"Cpus_allowed", "Mems_allowed",
}

// inheritedFiles are files of /proc/self with what else it inherits. Some kernels lack some.
var inheritedFiles = []string{"cgroup", "attr/current", "oom_score_adj", "coredump_filter"}

var namespaces = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}

// perCall are variables that shells and Codex set anew for each command. Their values are in the [Call].
var perCall = []string{"PWD", "OLDPWD", "SHLVL", "_", "CODEX_TOOL_CALL_ID"}

// rlimits is RLIM_NLIMITS.
const rlimits = 16

// KeyOf returns the key of this process for an agent. The working folder is the agent's.
func KeyOf(agent int) (Key, error) {
	started, err := startOf(agent)
	if err != nil {
		return "", err
	}
	b := &facts{}
	b.text("cloche keeper 1", strconv.Itoa(agent), started)
	dir, err := unix.Getwd()
	if err != nil {
		return "", os.NewSyscallError("getwd", err)
	}
	b.text(dir)
	for _, file := range []string{".", "/", "/proc/self/exe"} {
		if err := b.file(file); err != nil {
			return "", err
		}
	}
	for _, name := range namespaces {
		link, _ := os.Readlink("/proc/self/ns/" + name)
		b.text(link)
	}
	status, err := slurp("/proc/self/status")
	if err != nil {
		return "", err
	}
	b.text(statusLines(status, inheritedStatus)...)
	for _, name := range inheritedFiles {
		text, _ := slurp("/proc/self/" + name)
		b.text(string(text))
	}
	if err := b.process(); err != nil {
		return "", err
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(perCall, name) {
			b.text(v)
		}
	}
	sum := sha256.Sum256(b.Bytes())
	return Key(prefix(agent) + hex.EncodeToString(sum[:])), nil
}

// prefix is how the keys of an agent begin.
func prefix(agent int) string { return strconv.Itoa(agent) + "-" }

// facts are what is hashed.
type facts struct{ bytes.Buffer }

// text adds texts, each with its length, so that no other texts give the same bytes.
func (b *facts) text(list ...string) {
	for _, s := range list {
		b.number(uint64(len(s)))
		b.WriteString(s)
	}
}

func (b *facts) number(list ...uint64) {
	for _, n := range list {
		b.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
}

// file adds what distinguishes a file from one that replaces it.
func (b *facts) file(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	b.number(st.Dev, st.Ino)
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		b.number(uint64(st.Size), uint64(st.Mtim.Nano()), uint64(st.Ctim.Nano()))
	}
	return nil
}

// errCPU is why there is no keeper with a limit on processor time: it would use up that of all commands, and be killed.
var errCPU = errors.New("processor time is limited (ulimit -t)")

// process adds what only system calls tell.
func (b *facts) process() error {
	for i := range rlimits {
		var l unix.Rlimit
		_ = unix.Getrlimit(i, &l) // all of them exist
		if i == unix.RLIMIT_CPU && l.Cur != unix.RLIM_INFINITY {
			return errCPU
		}
		b.number(l.Cur, l.Max)
	}
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return os.NewSyscallError("sched_getattr", err)
	}
	b.text(fmt.Sprint(*attr))
	const itself, ask = 1, 0xffffffff
	io, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, itself, 0, 0)
	persona, _, _ := unix.Syscall(unix.SYS_PERSONALITY, ask, 0, 0)
	b.number(uint64(io), uint64(persona))
	for _, option := range []int{unix.PR_GET_TIMERSLACK, unix.PR_GET_SECUREBITS, unix.PR_GET_THP_DISABLE} {
		value, _ := unix.PrctlRetInt(option, 0, 0, 0, 0)
		b.number(uint64(value))
	}
	return nil
}

// statusLines returns the values of some lines of a status file, in their order there.
func statusLines(status []byte, names []string) (values []string) {
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains(names, name) {
			values = append(values, name, strings.TrimSpace(value))
		}
	}
	return values
}

// startField is the start time in /proc/PID/stat, counted from the field after the name.
const startField = 19

// startOf returns when a process started. With its pid that is unique until the next boot.
func startOf(pid int) (string, error) {
	stat, err := slurp("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The name may contain anything, even a closing bracket.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= startField {
		return "", errors.New("what /proc says of process " + strconv.Itoa(pid) + " is cut short")
	}
	return fields[startField], nil
}

// slurp reads a small file of /proc. os.ReadFile would first register it with the poller.
func slurp(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = slices.Grow(text, 3*cap(text))
		}
	}
}
