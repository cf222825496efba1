// Package sysprog holds the launcher: system calls as data, and what runs them.
//
// A [Program] is a list of system calls that turns a new process into a
// sandbox and ends in execve. A backend compiles a plan into a program with the
// building blocks of [Block]; this is pure, works on every platform, and the
// program can be printed, compared with a golden file and written as JSON.
//
// [Run] lays the program out in one piece of memory and runs it in a child made
// by clone(CLONE_VM|CLONE_VFORK|CLONE_NEW…|CLONE_PIDFD). Nothing is copied for
// the child, so its cost does not grow with the heap of the caller, and there is
// no helper binary and no second start of a Go program.
//
// # How the child runs
//
// Between clone and execve the child shares all memory with a running Go
// process, which is why the naive way, to let it run Go code, is dangerous: a
// stack that grows, a write barrier, a signal handler or the race detector would
// act on the caller's own state. The child here runs no Go code at all. It is a
// loop of some sixty instructions of assembly that works in registers and in
// the program's memory. It touches no stack, so sharing the stack of the
// calling thread, which sleeps in clone until execve, is harmless, and a stack
// of its own would be of no use. That memory holds no pointer that the garbage
// collector has to know: addresses of a Go slice kept as numbers do not keep the
// slice alive, so everything is copied into the one block, which is pinned.
//
// All signals are blocked from before the clone. The child keeps them blocked
// until execve, which is what guarantees that no handler of the caller runs in
// it; execve resets the handlers and leaves the mask. Whatever is executed has
// to open the mask, as cloche's init does, or the program ends with
// [Block.ResetSignals], which takes the handlers away first.
//
// The caller's P is given back to the scheduler for as long as the child runs,
// so a slow step, a mount for instance, holds up neither other goroutines nor a
// stop of the world.
//
// # Made ahead
//
// To make a network namespace takes the kernel longer than all mounts of a sandbox.
// [Begin] makes the process in its namespaces, on another thread, before its program
// is known: it runs a prelude of a few records, which waits for a byte from the
// caller, takes a copy of the table of descriptors, and goes on with the records of
// the program, in the same memory and by the same loop.
//
// # What a program has to take care of
//
// Descriptors: the child gets a copy of the whole table, and syscall.ForkLock is
// not taken, because it would make launches wait for each other. So a program
// closes what is not its own, early, by [Block.CloseOthers]: an early close also
// keeps a file that the caller is writing from looking busy (ETXTBSY) for longer
// than needed. Descriptors with close-on-exec serve all steps and are gone after
// execve.
//
// Open files: the Go runtime raises the soft RLIMIT_NOFILE of its process to the
// hard limit, and only os/exec lowers it again for children. A program that
// wants another limit sets it by [Block.Prlimit].
//
// Memory: a step that changes properties of the memory would change the
// caller's. Such calls are refused, and where a change of ids in the child makes
// the kernel clear the caller's "dumpable" flag, Run sets it again.
//
// Death: a parent-death signal follows the *thread* that forked. While the
// program runs this is exact, for that thread sleeps in clone. After execve it
// is not, since the Go runtime ends threads as it likes: the program should
// clear it and leave the rest to a pipe that the init watches.
//
// # Waiting
//
// [Process] waits and signals by a pidfd, which never means another process. A
// caller that ignores SIGCHLD, or that has a wait4(-1) loop of its own, takes the
// exit status away: [Process.Wait] still returns when the process is gone, with
// [ErrNoStatus].
//
// # Limits
//
// linux/amd64 and linux/arm64, kernel 5.4 (waitid by pidfd); the calls of the
// blocks have limits of their own, the newest being mount_setattr in 5.12. Other
// platforms have [ErrUnsupported].
package sysprog
