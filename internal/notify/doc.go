// Package notify answers the system calls that a sandbox's filter hands over
// instead of letting the kernel run them (seccomp user notification, Linux 5.5;
// handing out descriptors, 5.14). It is what holds rules about names: a pattern,
// a path that does not exist yet, a git directory wherever it is.
//
// A Broker reads the names of a call once, into memory of its own, finds out
// which file they mean in the sandbox's file system, asks the plan, and carries
// the call out itself: it opens the file and gives the descriptor to the
// process, makes the folder, renames. One call is judged and carried out before
// the next, so that nothing the sandboxed processes do comes in between.
//
// The broker lets the kernel go on with every call that it does not find to
// end in a guarded folder. Names in the process's memory may have changed by
// then. That gains nothing: Landlock refuses the sandboxed processes every
// change of a guarded folder, and the broker, which is not under Landlock, is
// the only one that can make it.
package notify
