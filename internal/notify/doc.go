// Package notify is the broker: it answers the system calls that a sandbox's filter hands over
// instead of letting the kernel run them (seccomp user notification, Linux 5.5; handing out
// descriptors, 5.14). It enforces rules about names: a pattern, a path that does not exist yet, a
// git directory wherever it is.
//
// The invariant: a name is read from the process once and looked up once; what is judged is
// what is used, by its descriptor; a call inside gets the error that it would get outside; and
// no allowed operation fails because threads race.
//
// # The story of a call
//
//  1. The thread receives a notification (broker_linux.go, thread_linux.go).
//  2. The broker reads the arguments of the call, once, into its own memory (call_linux.go).
//  3. It looks up each name in the sandbox's file system (openat2 with RESOLVE_IN_ROOT). The
//     result is a place: an open directory, its real path, and a name in it (path_linux.go).
//  4. It judges the real path by judge.Files and package gitguard, under a lock that it shares
//     with the brokers of the user's other sandboxes (judge_linux.go). If somebody can be asked,
//     the call may wait for the answer (ask_linux.go).
//  5. It makes the change with the rights of the process: open_linux.go, change_linux.go,
//     socket_linux.go, domain_linux.go. Or it lets the kernel run the call.
//  6. It records a denial. Attempts at files that a mask hides are recorded apart
//     (attempt_linux.go), and so are connections that fail (unreachable_linux.go).
//
// One call is judged and carried out before the next, so that nothing that the sandboxed
// processes do comes in between.
//
// # Why a broker
//
// Mounts enforce a rule about a path that exists. They cannot enforce a pattern, a path that
// does not exist yet, or a git directory wherever a command makes one; a placeholder would show
// on the host. So, on native and bwrap:
//
//   - The Landlock domain lets the command only read and execute in the writable directories
//     and files of the host ("guarded"), under every policy: git outside runs what a command
//     leaves in any of them.
//   - The seccomp filter hands every call that could change a file tree to the broker. With a
//     rule that hides by a pattern, it hands over opens for reading too. For reading there is no
//     second layer, because a Landlock domain that cannot read a file cannot execute it either.
//   - The broker, which is not under Landlock, makes the changes.
//
// A second listener in a nested sandbox is refused by the kernel (EBUSY). There, and before
// Linux 5.19, rules about names are gaps.
//
// # When the kernel runs a call
//
// A name in the process's memory may have changed when the kernel reads it again. That gains
// nothing: Landlock denies the sandboxed processes every change of a guarded directory. But the
// error may differ. Other threads make and remove directories; where the kernel then finds that
// the call is possible, Landlock returns EACCES, which no rule asked for. So each call whose path
// leads into a guarded directory, as far as it leads anywhere, is answered by the broker: it is
// carried out, or fails with the error that was found. The kernel runs a call (errGoOn) only in
// these cases:
//
//   - The path ends outside of the guarded directories, or in /proc.
//   - The path ends in "/", "." or "..", or is itself a link in /proc (errUnnamed). The kernel
//     refuses such names before Landlock is asked.
//   - The call changes nothing, and Landlock does not judge it: opens for reading where no
//     pattern hides files, opens with O_PATH, umask, the execution of a program.
//   - The arguments of openat2 cannot be read. The kernel cannot read them either.
//
// One cause of an unwanted EACCES is left: a symbolic link in a guarded directory that leads out
// of it, and that another thread replaces while it is being followed to write. And since the
// broker looks paths up from the root, a name that goes through a link to /proc/self in the
// middle of a path is not found.
//
// # Symbolic links
//
// A change is judged by the real path of a file, while programs outside find the file by any
// name. So this has to be true for every symbolic link that is made, moved, brought along by a
// directory or given a second name: what a rule forbids below the link's name, it also forbids
// where the link leads, whatever is made, moved or replaced later. Any other link is denied
// (judge.Files.Leads), by its text and its place alone.
//
// # Directories that a process has open
//
// A path that begins in the working directory or at a descriptor is looked up from the root, too.
// If that fails because a directory above is not searchable any more, or because the path is
// longer than the kernel takes, it is looked up from the directory that the process has open. The
// directory found is judged by its real path, and has to be the one that this path means inside
// (call.shows). A path of more than 4096 bytes, which the kernel does not report, is found from
// below: the name of each directory is looked for in the one above. If one above cannot be listed,
// or the path has more than 16 KiB, the path is not known, and the call fails with ENAMETOOLONG. So
// does openat2 with RESOLVE_BENEATH or RESOLVE_IN_ROOT in such a directory, or with EACCES.
//
// # Sockets
//
// A unix socket with a path is a new file. In a guarded directory the broker takes the socket
// (pidfd_getfd) and binds it, with the umask of the process and under the name that the program
// gave. If that name means something else outside, getsockname returns the last part of the name.
//
// Unless the network is the host's, the broker also makes every connect, so that the command
// reaches no socket that the host makes later. The kernel runs none, not even one to an internet
// address: another thread could put a unix socket behind the descriptor and a path into the
// address.
//
// # Calls that wait
//
// If somebody can be asked (cloche.WithAsk), a denied call is put aside with a copy of what was
// read from the process. When there is an answer, the call is judged again from the start, with
// the granted lines added (judge.NewFilesWith), so that the answer allows what was asked about and
// nothing else. The broker finds a granted file on the host, component by component, following
// links only by name in the sandbox's view. Rules that were redundant count again
// (plan.Plan.Repeated), and locked lines cannot be granted.
//
// # The broker's own rights
//
// The broker opens nothing that the command could not open. Its thread gives up every capability
// that the command does not have. Entries of /proc that depend on the process that opens them are
// denied. A descriptor without a path, such as a pipe, is taken once, judged, and opened from
// there. Because it is another process in another mount namespace, the broker itself takes care
// of the caller's umask, /proc/self and /dev/std*, FIFOs that wait, and busy mount points
// (judge.Files.Pinned).
//
// # Cost
//
// A removal takes 11 system calls of the broker, a rename in one directory or a new file 12. With
// a pattern that hides, each file that is read costs as much as a new one. A notification takes
// 3 µs of processor time if it is only answered, and 7 µs if it hands over a new file, as much as
// two changes on a tmpfs; on the clock it takes about 10 µs if process and broker take turns on one
// processor (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6), and several times that if anything else
// is woken. docs/reference/measurements.md has what the rest is spent on. Hence:
//
//   - A thread waits in one poll, without the runtime's poller or a goroutine in between, and
//     outlasts its broker.
//   - Opens of the loader's cache and of system libraries are answered without a look-up where
//     the plan hides nothing there (judge.Masks.ShowsProgram).
//   - The command's own execution is not handed over: the init uses execveat with
//     AT_EMPTY_PATH.
//   - A change that the rules allow because of its name, whatever is there, is made without a
//     look at the place first (call.allowsByName).
//   - The umask of a thread, and its directory in /proc, are remembered from one call to the
//     next, as long as they cannot have changed (caller_linux.go). Directories of paths are not:
//     nothing says that somebody outside has moved one.
//
// No directory is left to Landlock alone to save that. The filter sees no path, so calls in it
// would be handed over as well, as those in a private /tmp are. And names mean something to git in
// every directory of the host.
package notify
