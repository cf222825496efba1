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
// write. And since the broker looks paths up from the root, a name that goes through a link
// to /proc/self in the middle of a path is not found.
//
// # Directories that a process holds
//
// A path that begins in the working directory or at a descriptor is looked up from the
// root, too. Where that fails because a directory above may not be searched any more, or
// because the path is longer than the kernel takes, it is looked up from the directory that
// the process holds (way). What is found is judged by its real path, and has to be the
// directory that this path means inside (call.shows). A path of more than 4096 bytes,
// which the kernel does not tell, is found from below: the name of each directory is looked
// for in the one above. Where one above cannot be listed, or the path has more than 16 KiB, the
// path is not known, and the call fails with ENAMETOOLONG. So does openat2 with
// RESOLVE_BENEATH or RESOLVE_IN_ROOT in such a directory, or with EACCES.
//
// # Why a broker
//
// Mounts enforce a rule about a path that exists. They cannot enforce a pattern, a
// path that does not exist yet, or a git directory wherever a command makes one; a
// placeholder would show on the host. So, on native and bwrap:
//
//  1. The Landlock domain lets the command only read and execute in the writable
//     directories and files of the host ("guarded"), under every policy: git
//     outside runs what a command leaves in any of them.
//  2. The seccomp filter hands every call that could change a file tree to the
//     broker. With a rule that hides by a pattern, opens for reading too: for
//     reading there is no second layer, because a Landlock domain that cannot read
//     a file cannot execute it either.
//  3. The broker reads the names once, finds the file in the sandbox's root
//     (openat2 with RESOLVE_IN_ROOT), asks plan.Judge and package gitguard, and
//     makes the change itself. Two sandboxes may share a workspace, so it holds a
//     lock meanwhile (changes.lock): ordinary changes share it, renames and
//     changes that mean something to git hold it alone. A broker that does not get
//     the lock within five seconds refuses the change and says so.
//
// A second listener in a nested sandbox is refused by the kernel (EBUSY). There, and
// before Linux 5.19, rules about names are gaps.
//
// # Sockets
//
// A unix socket with a path is a new file. In a guarded directory the broker takes the
// socket (pidfd_getfd) and binds it, with the umask of the process and under the name
// that the program gave. Where that name means something else outside, getsockname
// returns the last part of the name.
//
// Unless the network is the host's, the broker also makes every connect, so that no
// socket is reached that the host made later. None goes on in the kernel, not even one
// to an internet address: another thread could put a unix socket behind the descriptor
// and a path into the address.
//
// # Calls that wait
//
// Where somebody can be asked (cloche.WithAsk), a denied call is put aside with a copy of
// what was read from the process. When there is an answer it is judged anew from the
// start, with the granted lines added (Plan.JudgeWith), so that the answer opens what
// was asked about and nothing else. The broker finds a granted file on the host,
// component by component, following links only by name in the sandbox's view. Rules
// that were redundant count again (Plan.Repeated), and locked lines cannot be granted.
//
// # A broker is no deputy
//
// The broker opens nothing that the command could not open. Its thread gives up every
// capability that the command does not have. Entries of /proc that depend on who opens
// them are refused. A descriptor without a path, such as a pipe, is taken once,
// judged, and opened from there. Because it is another process in another mount
// namespace, the broker does for itself: the umask of the caller, /proc/self and
// /dev/std*, FIFOs that wait, and busy mount points (Judge.Pinned).
//
// # Cost
//
// On an idle machine with two cores: a removal about 22 µs more than without, a rename
// 32, a new file 65. With a pattern that hides, each file that is read costs as much
// as a new one. A notification takes about 10 µs if process and broker take turns on
// one processor (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6), and several times
// that if anything else is woken. Hence:
//
//   - A thread waits in one poll, without the runtime's poller or a goroutine in
//     between, and outlasts its broker.
//   - Opens of the loader's cache and of system libraries are answered without a
//     look-up where the plan hides nothing there (plan.Masks.ShowsProgram).
//   - The command's own execution is not handed over: the init uses execveat with
//     AT_EMPTY_PATH.
package notify
