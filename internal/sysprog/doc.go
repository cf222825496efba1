// Package sysprog describes system calls as data, and runs them in a new process.
//
// A [Program] is a list of system calls that turns a new process into a sandbox and ends in
// execve. A backend compiles a plan into a program with the methods of [Block]; this is pure,
// works on every platform, and the program can be printed, compared with a golden file and
// written as JSON.
//
// [Run] lays the program out in one block of memory and runs it in a child made by
// clone(CLONE_VM|CLONE_VFORK|CLONE_NEW…|CLONE_PIDFD). Nothing is copied for the child, so its
// cost does not grow with the caller's heap, and neither a helper binary nor a second start of
// a Go program is needed.
//
// # How the child runs
//
// Between clone and execve the child shares all memory with a running Go process. The naive
// way, to let it run Go code, is dangerous: a stack that grows, a write barrier, a signal
// handler or the race detector would change the caller's own state. This child runs no Go code
// at all. It runs a loop of some sixty instructions of assembly that uses only registers and
// the program's memory. It does not touch the stack, so sharing the stack of the calling
// thread, which sleeps in clone until execve, is harmless, and a separate stack is not needed.
// The program's memory contains no pointer that the garbage collector has to know: addresses
// kept as numbers do not keep a Go slice alive, so everything is copied into the one block,
// which is pinned.
//
// All signals are blocked from before the clone until execve, which guarantees that no handler
// of the caller runs in the child. execve resets the handlers and keeps the mask. So the
// executed program has to unblock signals, as cloche's init does, or the program of system
// calls ends with [Block.Sigmask] when no handler of the caller is left, as after
// [Block.Fork].
//
// While the child runs, the caller's P is given back to the scheduler, so that a slow step,
// for example a mount, delays neither other goroutines nor a stop of the world.
//
// # Made ahead
//
// Making a network namespace takes the kernel longer than all mounts of a sandbox. [Begin]
// makes the process in its namespaces, on another thread, before its program is known. The
// process runs a prelude of a few records, which waits for a byte from the caller, takes a
// copy of the table of descriptors, and continues with the records of the program, in the same
// memory and with the same loop.
//
// # What a program has to do
//
// Descriptors: the child gets a copy of the whole table, and syscall.ForkLock is not taken,
// because launches would then wait for each other. So a program closes other descriptors
// early, with [Block.CloseOthers]: closing early also avoids that a file which the caller is
// writing stays busy (ETXTBSY) longer than needed. Descriptors with close-on-exec can be used
// by all steps and are gone after execve.
//
// Open files: the Go runtime raises the soft RLIMIT_NOFILE of its process to the hard limit,
// and only os/exec lowers it again for children. A program that needs another limit sets it
// with [Block.Prlimit].
//
// Memory: a step that changes properties of the memory would change the caller's. Such calls
// are rejected. If a change of ids in the child makes the kernel clear the caller's "dumpable"
// flag, Run sets it again.
//
// Death: a parent-death signal is sent when the *thread* that forked ends. While the program
// runs this is exact, because that thread sleeps in clone. After execve it is not, because the
// Go runtime may end threads at any time: the program should clear the signal and rely on a
// pipe that the init watches.
//
// # Waiting
//
// [Process] waits and signals by a pidfd, which never refers to another process. If the caller
// ignores SIGCHLD, or has its own wait4(-1) loop, the exit status is lost: [Process.Wait]
// still returns when the process has ended, with [ErrNoStatus].
//
// # Limits
//
// It needs linux/amd64 or linux/arm64, and Linux 5.4 (waitid by pidfd). The calls of the
// blocks have their own limits; the newest is mount_setattr in Linux 5.12. On other platforms
// functions return [ErrUnsupported].
package sysprog
