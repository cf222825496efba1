// Package notify answers the system calls that a sandbox's filter hands over
// instead of letting the kernel run them (seccomp user notification, Linux 5.5;
// handing out descriptors, 5.14). It is what holds rules about names: a pattern,
// a path that does not exist yet, a git directory wherever it is.
//
// A Broker reads the names of a call once, into memory of its own, finds out
// which file they mean in the sandbox's file system, asks the plan, and carries
// the call out itself: it opens the file and gives the descriptor to the
// process, makes the directory, renames. One call is judged and carried out before
// the next, so that nothing the sandboxed processes do comes in between. A lock in
// cloche's state directory holds that across the sandboxes of one user.
//
// The broker lets the kernel go on with every call that it does not find to
// end in a guarded directory. Names in the process's memory may have changed by
// then. That gains nothing: Landlock refuses the sandboxed processes every
// change of a guarded directory, and the broker, which is not under Landlock, is
// the only one that can make it.
//
// # Links
//
// A change is judged by the real path of a file, while programs outside find the file by
// any name. So for every symbolic link that is made, moved, brought along by a directory
// or given a second name, this has to hold: what a rule forbids below the link's name, it
// also forbids where the link leads, whatever is made, moved or replaced later. A link
// for which that is not so is refused (plan.Judge.Leads), by its text and its place alone.
//
// # Errors
//
// A call gets the error that it would get without a sandbox. The kernel must not
// be left to find that error itself: between the broker's look and the kernel's, other
// threads make and remove directories, and where the kernel then finds that the call is
// possible, Landlock says EACCES, which no rule asked for. So each call whose path
// leads into a guarded directory, as far as it leads anywhere, is answered here: it is
// carried out, or it fails with the error that was seen. One moment of the call is as
// good as another for that.
//
// The kernel goes on (call.resume) only in these cases:
//
//   - The path ends outside of the guarded directories, or in /proc: call.outside,
//     call.failSeen, call.failAt, openCall.writeStep.
//   - The path ends in "/", "." or "..", or is itself a link of /proc (errUnnamed). The
//     kernel refuses such names before Landlock is asked.
//   - The call changes nothing, and Landlock does not judge it: opens for reading where
//     no pattern hides files, opens with O_PATH, umask, the execution of a program.
//   - openat2 whose arguments cannot be read. The kernel cannot read them either.
//
// One way to an unwanted EACCES is left: a symbolic link in a guarded directory that
// leads out of it, and that another thread replaces while it is being followed to
// write. And since the broker looks paths up from the root, some names are not found: one
// that goes through a link to /proc/self in the middle of a path, one below a working
// directory whose path has more than 4096 bytes, and one below a working directory above
// which a directory may not be searched any more.
package notify
