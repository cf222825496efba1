// Package supervise starts what a backend compiled and sees it through: it
// opens the descriptors, connects the standard streams, keeps the limits,
// forwards signals, and when the run is over, however it got there, nothing of
// it is left.
//
// # Lifetime
//
// A launch with an init (package initprog) has a pid namespace of its own. The
// supervisor ends it by killing pid 1, and the kernel kills the rest: no
// process escapes by leaving its session, by forking twice or by ignoring
// signals. If the supervising process itself is killed, the lifeline, a pipe
// whose other end only it holds, tells the init to end the tree.
//
// An init with no pid namespace (backend.Launch.Adopts) adopts orphans instead.
// It is never killed first: the loss of its lifeline makes it kill all its
// descendants and then end. One that is killed all the same, by the kernel for
// want of memory for instance, lets go of processes that have left its session.
//
// The launcher (bwrap) gets no parent-death signal. Killing it between its
// clone and the moment when it lets its child go on would leave a child that
// waits forever; with the lifeline the sandbox gets up and falls again at once.
//
// A launch with no init is the backend "none", or on macOS Seatbelt. Its processes are found by
// parentage, process group and session. One that has left all three, a daemon
// that forked twice into a session of its own, is out of reach, and if the
// supervising process is killed only the command itself dies with it.
package supervise
