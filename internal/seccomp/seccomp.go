// Package seccomp writes the system-call filter that a sandboxed command runs
// under. The filter is a second wall: mounts, namespaces and Landlock decide
// what a command can reach, and the filter takes away the calls that could
// undo those (new namespaces, mounts), that reach the kernel or the host past
// them (keyrings, io_uring, rare socket families), or that leave something
// dangerous behind (setuid files, characters typed into the caller's terminal).
//
// The compiler is pure: the same [Options] give the same bytes on every
// operating system, and nothing here loads a filter. The bytes are what
// `bwrap --seccomp FD` reads and what seccomp(2) takes as its instructions.
//
// # What the filter is not
//
// It is a list of denials, so it does not make a kernel bug in an allowed call
// unreachable. It sees numbers, never memory: a call that hides its arguments
// behind a pointer (clone3, openat2) can only be refused whole. It does not act
// on descriptors that the command inherits.
//
// # Calls that stay
//
// ptrace, process_vm_readv and process_vm_writev stay, because debuggers and
// tracers are useful inside; the pid namespace, or Landlock's own ptrace rule,
// bounds them to the command's own processes. From Linux 4.8 on a filter is
// consulted after a tracer has changed a call, so tracing does not bypass it.
// seccomp, prctl and the Landlock calls stay, because they can only tighten: an
// errno of this filter outranks a trace or notification of a nested one.
// name_to_handle_at stays, because a handle is useless without
// open_by_handle_at. The S_ISGID bit stays in chmod, because on a folder it is
// how teams share a tree, and the arguments of chmod do not tell a folder from a
// file; see [Options.DenySetgidBits].
//
// # Notifications
//
// [Options.Notify] sends groups of calls to a listener (seccomp_unotify) where
// the filter would otherwise allow them: a process outside then performs the
// call, refuses it, or lets it go on. What the rules deny stays denied and is
// never sent, but for the calls of [NotifyDenied], which the listener refuses: without
// a listener they fail, too. The listener sees pointers into memory that the command can change
// at any time: letting a call go on is not a check. Linux 5.0, for an answer that
// lets a call go on 5.5, and for one that puts a descriptor in place 5.9.
//
// The oldest kernel for the filter is Linux 4.14, for SECCOMP_RET_KILL_PROCESS.
// From 5.11 on the kernel remembers which calls are always allowed and does not
// run the filter for them at all.
package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
)

// Options choose what the filter denies. The zero value is right for a backend
// that gives the command its own user, mount, pid, network and IPC namespaces.
type Options struct {
	// Arch is the architecture in Go's spelling, amd64 or arm64. Empty is the
	// one that this program was built for.
	Arch string
	// AllowNamespaces lets the command make namespaces and mount inside them. Only
	// tests set it, to show what else refuses mounts: the broker looks names up
	// from the root that all processes have, which a process with capabilities in
	// a namespace of its own could change. docs/threat-model.md has the reasons.
	AllowNamespaces bool
	// AllowSetuidBits lets the command make files that run as their owner.
	AllowSetuidBits bool
	// DenySetgidBits denies S_ISGID in chmod too, for folders and files alike. A
	// command in a tree that a team shares by that bit can then not change modes
	// of folders there. Calls that make a file never take the bit.
	DenySetgidBits bool
	// DenyInet denies IPv4 and IPv6 sockets of every kind. It is for a backend
	// without a network namespace: Landlock has no rule for UDP.
	DenyInet bool
	// DenyUnix denies unix sockets that could be connected to a path. Connected
	// pairs stay. It is for a backend that cannot hide the host's sockets.
	DenyUnix bool
	// DenyIPC denies System V IPC and POSIX message queues. It is for a backend
	// without an IPC namespace; they are the host's there.
	DenyIPC bool
	// DenyOthers denies limits and priorities of other processes, the command's own
	// among them. It is for a backend without a pid namespace: they are the host's
	// there.
	DenyOthers bool
	// OneOwner denies giving a file to another user or group than UID and GID. It is
	// for an ordinary user's command in a user namespace that maps no other ids. The
	// kernel answers EINVAL there in place of EPERM, and programs such as fakeroot
	// and tar go on only after EPERM.
	OneOwner bool
	UID, GID uint32
	// LeaveDenied leaves the calls of NotifyDenied to a second filter, which is loaded before the
	// command runs and hands them to a listener: the error of this filter would outrank that.
	LeaveDenied bool
	// Notify are the calls that a listener decides. A filter with any has to be
	// installed with SECCOMP_FILTER_FLAG_NEW_LISTENER: without a listener these
	// calls fail with ENOSYS.
	Notify Notify
}

// An Errno is the error that a denied call returns, by its Linux number on both
// architectures. It is not syscall.Errno, whose numbers follow the system that
// this program runs on.
type Errno uint16

// The errors that the filter answers with.
const (
	EPERM           Errno = 1
	ENOSYS          Errno = 38
	EPROTONOSUPPORT Errno = 93
	ESOCKTNOSUPPORT Errno = 94
	EAFNOSUPPORT    Errno = 97
)

// filters keeps what Filter has made, by its options: a program that starts many
// commands needs one or two filters, again and again.
var filters sync.Map

// Filter returns the program for o in the layout of the kernel's struct
// sock_filter, little-endian as both architectures are under Linux. The bytes
// are everybody's and must not be changed.
func Filter(o Options) ([]byte, error) {
	if b, ok := filters.Load(o); ok {
		return b.([]byte), nil
	}
	b, err := newFilter(o)
	if err == nil {
		filters.Store(o, b)
	}
	return b, err
}

func newFilter(o Options) ([]byte, error) {
	program, err := Program(o)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 8*len(program))
	for _, i := range program {
		b = binary.LittleEndian.AppendUint16(b, i.Op)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b, nil
}

// Program returns the instructions of the filter for o.
func Program(o Options) ([]Instruction, error) {
	m, err := machineFor(o.Arch)
	if err != nil {
		return nil, err
	}
	return compile(m, append(rulesFor(o), notifyRules(o, m)...))
}

// A machine is what the filter needs to know of an architecture.
type machine struct {
	name string
	// audit is the AUDIT_ARCH_ value that the kernel puts in seccomp_data.
	audit uint32
	pick  func(number) int
	// The flags of open(2) that have other numbers on other architectures.
	openDirectory, openNoFollow uint32
}

// machineFor returns the machine of that name in Go's spelling.
func machineFor(arch string) (machine, error) {
	if arch == "" {
		arch = runtime.GOARCH
	}
	switch arch {
	case "amd64":
		return machine{arch, 0xc000003e, func(n number) int { return n.amd64 }, 0x10000, 0x20000}, nil
	case "arm64":
		return machine{arch, 0xc00000b7, func(n number) int { return n.arm64 }, 0x4000, 0x8000}, nil
	}
	return machine{}, fmt.Errorf("seccomp: no system-call filter for architecture %q: there are tables for amd64 and arm64", arch)
}

// number returns the number of the call of that name, absent if the
// architecture does not have it; ok is false for a name that is in no table.
func (m machine) number(name string) (n int, ok bool) {
	for _, e := range numbers {
		if e.name == name {
			return m.pick(e), true
		}
	}
	return absent, false
}
