// Package supervise starts what a backend compiled and stays with it until it has ended: it
// opens the descriptors, connects the standard streams, enforces the limits that the kernel
// does not, forwards signals, and leaves no process behind, however the run ends.
//
// # Lifetime
//
// A launch with an init (package initprog) has its own pid namespace. The supervisor ends it
// by killing pid 1, and the kernel kills the rest: no process escapes by leaving its session,
// by forking twice or by ignoring signals. The lifeline is a pipe whose other end only the
// supervisor holds. If the supervisor itself is killed, the pipe closes, and the init ends the
// tree.
//
// An init without a pid namespace (backend.Launch.Adopts) adopts orphans instead. The
// supervisor does not kill it, but closes its lifeline: the init then kills all its
// descendants and ends. If the init is killed by something else, for example by the kernel
// because memory is short, processes that have left its session live on.
//
// The launcher (bwrap) gets no parent-death signal. If it were killed after its clone and
// before it lets its child continue, the child would wait forever. With the lifeline, the
// sandbox is completed and then ends at once.
//
// A launch without an init is the backend "none", or on macOS Seatbelt. Its processes are
// found by parent, process group and session. A process that has left all three, such as a
// daemon that forked twice into a new session, is not found. If the supervisor is killed, only
// the command itself is killed with it.
package supervise
