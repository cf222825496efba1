package sysprog

import (
	"encoding/binary"
	"fmt"
)

// Prctl makes a prctl call, printed with the name of the option.
func (b Block) Prctl(option uint64, name string, args ...uint64) {
	list := [5]Arg{Named(option, name)}
	for i, v := range args[:min(len(args), 4)] {
		list[i+1] = Const(v)
	}
	b.Call("prctl", list[:]...)
}

// NoNewPrivs permanently prevents setuid programs and file capabilities from giving
// privileges. Landlock and seccomp require it without CAP_SYS_ADMIN.
func (b Block) NoNewPrivs() { b.Prctl(prSetNoNewPrivs, "PR_SET_NO_NEW_PRIVS", 1) }

// DeathSignal sets the signal that the process gets when the thread that forked it ends, or
// with 0 none. Until exec that thread waits, so the signal means that the caller has ended;
// after exec it would come at random.
func (b Block) DeathSignal(signal int) {
	b.Prctl(prSetDeathSignal, "PR_SET_PDEATHSIG", uint64(signal))
}

// DropBounding drops every capability from the bounding set except those in keep, a bit set.
// Without it user 0 gets all of them back at exec. Which capabilities the kernel has is found
// out when the program is laid out.
func (b Block) DropBounding(keep uint64) {
	b.Call(macroDropBounding, Named(keep, fmt.Sprintf("%#x", keep)))
}

// ClearAmbient empties the ambient set.
func (b Block) ClearAmbient() {
	b.Call("prctl", Named(prCapAmbient, "PR_CAP_AMBIENT"), Named(prCapAmbientClear, "PR_CAP_AMBIENT_CLEAR_ALL"), Const(0), Const(0), Const(0))
}

// Capset sets the capabilities, given as sets of bits.
func (b Block) Capset(effective, permitted, inheritable uint64) {
	header := binary.LittleEndian.AppendUint32(nil, capabilityVersion3)
	header = binary.LittleEndian.AppendUint32(header, 0) // this process
	var data []byte
	for shift := 0; shift < 64; shift += 32 {
		for _, set := range []uint64{effective, permitted, inheritable} {
			data = binary.LittleEndian.AppendUint32(data, uint32(set>>shift))
		}
	}
	note := fmt.Sprintf("{effective=%#x, permitted=%#x, inheritable=%#x}", effective, permitted, inheritable)
	b.Call("capset", Bytes(header, "{version=3, pid=0}"), Bytes(data, note))
}

// LandlockRestrictSelf enforces a ruleset. It needs Linux 5.13.
func (b Block) LandlockRestrictSelf(ruleset Arg) {
	b.Call("landlock_restrict_self", ruleset, Const(0))
}

// Seccomp installs a filter, an array of struct sock_filter in the kernel's format; f are
// Seccomp… flags.
func (b Block) Seccomp(filter []byte, f uint64) {
	b.Call("seccomp", seccompArgs(filter, f)...)
}

// SeccompListener installs a filter and returns the descriptor on which its notifications
// arrive; the kernel makes it close-on-exec. [Block.SendListener] sends it to the parent. If
// the filter asks about sendmsg, the parent takes it with pidfd_getfd instead, which needs the
// right to trace the child, while the child waits in [Block.SyncParent]: see [Child.Result].
// It needs Linux 5.0.
func (b Block) SeccompListener(filter []byte, f uint64) Arg {
	return b.CallResult("seccomp", seccompArgs(filter, f|seccompNewListener)...)
}

// SendListener installs a filter and sends its listener over a unix socket, a file of the
// program. The number must be free, and is free again afterwards. The rest of the program runs
// under the filter: a call that the filter asks about, for example an execve, waits until the
// receiver of the listener answers.
func (b Block) SendListener(filter []byte, f uint64, socket Arg, number int) {
	listener := b.SeccompListener(filter, f)
	b.Dup3(listener, number)
	b.SendFD(socket, number)
	b.Close(FD(number))
	b.Close(listener)
}

func seccompArgs(filter []byte, f uint64) []Arg {
	prog := Arg{Kind: KindFilter, Text: string(filter), note: func() string {
		return fmt.Sprintf("{len=%d, filter=…}", len(filter)/sizeofSockFilter)
	}}
	return []Arg{Named(seccompSetFilter, "SECCOMP_SET_MODE_FILTER"), flags(f, seccompNames), prog}
}

// Setsid starts a session, without a controlling terminal and without the caller's process
// group.
func (b Block) Setsid() { b.Call("setsid") }

// Prlimit sets a resource limit; ^uint64(0) means no limit.
func (b Block) Prlimit(resource uint64, name string, soft, hard uint64) {
	data := binary.LittleEndian.AppendUint64(nil, soft)
	data = binary.LittleEndian.AppendUint64(data, hard)
	note := fmt.Sprintf("{rlim_cur=%s, rlim_max=%s}", limit(soft), limit(hard))
	b.Call("prlimit64", Const(0), Named(resource, name), Bytes(data, note), null())
}

func limit(v uint64) string {
	if v == ^uint64(0) {
		return "RLIM64_INFINITY"
	}
	return fmt.Sprint(v)
}

// Unshare moves the process into new namespaces. A new pid namespace only applies to processes
// that it forks: see [Block.Fork].
func (b Block) Unshare(f uint64) { b.Call("unshare", flags(f, cloneNames)) }

// Setns moves the process into the namespaces of a descriptor: a file of /proc/PID/ns or, with
// several flags, a pidfd (Linux 5.8).
func (b Block) Setns(fd Arg, f uint64) { b.Call("setns", fd, flags(f, cloneNames)) }

// Fork forks a new process, which runs the rest of the program while this one ends. The New…
// flags give the new process further namespaces of its own. This is how a process gets into a
// pid namespace that it has joined with [Block.Setns]. The new process is a child of the
// caller of Run, and the one that Run returns. A program forks at most once, and not as pid 1
// of a namespace. The new process has none of the caller's signal handlers; signals that the
// caller ignores stay ignored.
func (b Block) Fork(f uint64) {
	all := f | cloneVM | cloneVfork | cloneParent | cloneParentSetTID
	b.Call("clone3", Named(f, describe(all, cloneNames)+"|CLONE_CLEAR_SIGHAND"))
}

// SyncParent waits until Options.SyncParent has returned. It is for what only the parent can
// do, such as mapping ids that the child does not own. If the caller ends meanwhile, the child
// is killed.
func (b Block) SyncParent() {
	here, there := Arg{Kind: KindSync}, Arg{Kind: KindSync, Value: 1}
	first := !b.p.syncs()
	b.DeathSignal(sigKill)
	if first { // otherwise another file may have its number
		b.Call("close", there)
	}
	b.Write(here, "?")
	b.Read(here, 1)
	b.DeathSignal(0)
}

// Sigmask sets the mask of blocked signals: bit 0 is signal 1. A handler of the caller must
// not run in the child, so each signal needs its default action before it is unblocked.
func (b Block) Sigmask(mask uint64) {
	data := binary.LittleEndian.AppendUint64(nil, mask)
	b.Call("rt_sigprocmask", Named(sigSetMask, "SIG_SETMASK"), Bytes(data, fmt.Sprintf("%#x", mask)), null(), Const(sizeofSigset))
}

// Execveat executes a descriptor, with the environment of Options.Env. For a script the
// descriptor must not be close-on-exec; for a binary it may be.
func (b Block) Execveat(fd Arg, argv ...string) {
	b.Call("execveat", fd, Str(""), vector(argv), environ(), flags(AtEmptyPath, atNames))
}

// ExecveatArgv is Execveat with the arguments of Options.Argv.
func (b Block) ExecveatArgv(fd Arg) {
	b.Call("execveat", fd, Str(""), Arg{Kind: KindArgv}, environ(), flags(AtEmptyPath, atNames))
}

// ExecveArgv executes a path that is passed to Run, with the arguments of Options.Argv.
func (b Block) ExecveArgv(path Arg) { b.Call("execve", path, Arg{Kind: KindArgv}, environ()) }

func vector(list []string) Arg { return Arg{Kind: KindVector, List: append([]string{}, list...)} }

func environ() Arg { return Arg{Kind: KindEnviron} }

// Exit ends the process, for programs that execute nothing.
func (b Block) Exit(code int) { b.Call("exit_group", Const(uint64(code))) }
