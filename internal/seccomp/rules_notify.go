package seccomp

import (
	"slices"
	"sync"
)

// A Notify is a set of groups of calls that a listener decides.
type Notify uint16

// The groups.
const (
	// NotifyWrites are the calls that change a file tree: opening for writing or
	// with O_CREAT, O_TRUNC or O_TMPFILE, mkdir, mknod, rename, link, symlink,
	// unlink, rmdir, truncate and bind, in all their forms. openat2 is one of them
	// whatever it opens, for its flags are behind a pointer; it gets there only
	// with [Options.AllowSetuidBits], because otherwise it is denied. A bind is
	// one of them whatever its address is, which is in memory, too. So are the locks that
	// belong to an open file: flock, and fcntl with F_OFD_GETLK, F_OFD_SETLK and
	// F_OFD_SETLKW. A listener that hands out new files closes its own copies before it
	// lets the kernel run them.
	NotifyWrites Notify = 1 << iota
	// NotifyReads are all other opens but those with O_PATH, which read nothing. A
	// notification costs some 50 µs: expect a program that opens many files to take
	// several times as long.
	NotifyReads
	// NotifyExec are execve and execveat of a name. A descriptor that is executed,
	// as the launcher does it with its init, is not asked about: it was opened
	// before, and nobody may be there yet to answer.
	NotifyExec
	// NotifyConnect are connect, sendto with an address, sendmsg and sendmmsg.
	// After it a listener can no longer be handed over with sendmsg; the parent
	// takes it with pidfd_getfd.
	NotifyConnect
	// NotifyDial is connect alone: what a datagram is sent to without it stays the
	// kernel's.
	NotifyDial
	// NotifyPlainReads are the opens for reading that cost little to ask about,
	// because few programs make very many of them: without O_PATH, O_DIRECTORY
	// and O_NOFOLLOW, which programs use that walk trees, and not as the runtime of
	// Go makes them. That one calls openat with AT_FDCWD as a number of 64 bits, C
	// libraries with one of 32; the tools of Go open ten thousand files to find out
	// that there is nothing to do.
	NotifyPlainReads
	// NotifyEveryRead are all opens for reading but those with O_PATH.
	NotifyEveryRead
	// NotifyDatagrams are socket and socketpair of unix datagram sockets. (SOCK_RAW is
	// one, too.)
	NotifyDatagrams
	// NotifyDenied are calls that the filter denies and that people want to know of:
	// new namespaces, mounts, device nodes, kernel instrumentation. The listener must
	// give the error of [Denied], and never let one of them go on. Nobody else can: a
	// process has one listener at most, and an error of a nested filter outranks it.
	NotifyDenied
)

// Denied returns the name of a call of this architecture, and the rule by which the
// filter denies it, if that is one of those of NotifyDenied. It looks at what the filter
// looks at: numbers that the process cannot change any more.
func Denied(number int, args [6]uint64) (call string, denied Rule, ok bool) {
	for _, r := range reportedCalls()[number] {
		if r.rule.holds(args) {
			return r.call, *r.rule, true
		}
	}
	return "", Rule{}, false
}

// A reportedCall is a call that a rule of NotifyDenied is about, by its name.
type reportedCall struct {
	call string
	rule *Rule
}

// reportedCalls are those of this architecture, by their numbers. They are asked about every
// call that a listener gets.
var reportedCalls = sync.OnceValue(func() map[int][]reportedCall {
	m, err := machineFor("")
	if err != nil {
		return nil
	}
	rules := slices.DeleteFunc(rulesFor(Options{}), func(r Rule) bool { return !r.reported })
	calls := map[int][]reportedCall{}
	for i := range rules {
		for _, name := range rules[i].calls {
			if n, ok := m.number(name); ok && n != absent {
				calls[n] = append(calls[n], reportedCall{name, &rules[i]})
			}
		}
	}
	return calls
})

// holds reports whether the rule denies a call with the arguments.
func (r *Rule) holds(args [6]uint64) bool {
	return !slices.ContainsFunc(r.terms, func(t term) bool { return !t.holds(args[t.arg]) })
}

func (t *term) holds(arg uint64) bool {
	if t.high {
		arg >>= 32
	}
	v := uint32(arg)
	if t.mask != 0 {
		v &= t.mask
	}
	switch t.test {
	case hasBits:
		return v&t.values[0] != 0
	case isOneOf:
		return slices.Contains(t.values, v)
	case isNoneOf:
		return !slices.Contains(t.values, v)
	}
	return false
}

// Flags of open(2) that are the same on both architectures.
const (
	// openWrites has the access modes other than O_RDONLY, O_CREAT, O_TRUNC and
	// __O_TMPFILE.
	openWrites = 0x3 | 0x40 | 0x200 | 0x400000
	// openPath is O_PATH. The kernel drops all flags beside it that matter here.
	openPath = 0x200000
	// emptyPath is AT_EMPTY_PATH.
	emptyPath = 0x1000
)

// notifyRules are those of o.Notify. They stand behind all others, which so
// decide first.
func notifyRules(o Options, m machine) []Rule {
	var list []Rule
	if o.Notify&NotifyWrites != 0 {
		list = append(list, changeRules()...)
	}
	switch { // the widest holds for the others
	case o.Notify&(NotifyReads|NotifyEveryRead) != 0:
		list = append(list, readRules(0)...)
	case o.Notify&NotifyPlainReads != 0:
		list = append(list, readRules(m.openDirectory|m.openNoFollow, highHalf(oneOf(0, 0)))...)
	}
	if o.Notify&(NotifyWrites|NotifyReads) != 0 {
		list = append(list, ask("openat2"))
	}
	if o.Notify&NotifyExec != 0 {
		list = append(list, ask("execve"), ask("execveat").where(without(4, emptyPath)))
	}
	switch {
	case o.Notify&NotifyConnect != 0:
		// Both halves of the address: one of them may be zero.
		list = append(list, ask("connect", "sendmsg", "sendmmsg"),
			ask("sendto").where(noneOf(4, 0)), ask("sendto").where(highHalf(noneOf(4, 0))))
	case o.Notify&NotifyDial != 0:
		list = append(list, ask("connect"))
	}
	if o.Notify&NotifyDatagrams != 0 {
		// Registers alone: no other thread can change what the filter saw.
		list = append(list, ask("socket", "socketpair").where(oneOf(0, familyUnix), oneOf(1, typeDgram, typeRaw).masked(typeMask)))
	}
	return list
}

// ask returns the rule that the listener decides the calls.
func ask(calls ...string) Rule { return Rule{Name: "notifications", calls: calls, notify: true} }

func changeRules() []Rule {
	return []Rule{
		ask("open").where(bits(1, openWrites), without(1, openPath)),
		ask("openat").where(bits(2, openWrites), without(2, openPath)),
		ask(
			"creat", "mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2", "link", "linkat",
			"symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "truncate", "bind",
			// Whoever performs the others has to know these.
			"umask", "landlock_restrict_self",
			// Their result depends on who has a file open: the listener closes its own copy first.
			"flock",
		),
		ask("fcntl").where(oneOf(1, getOFDLock, setOFDLock, setOFDLockWait)),
	}
}

// readRules are those for opens that only read, with none of the flags; for openat more
// terms have to hold.
func readRules(flags uint32, more ...term) []Rule {
	none := openWrites | openPath | flags
	return []Rule{
		ask("open").where(without(1, none)),
		ask("openat").where(append([]term{without(2, none)}, more...)...),
	}
}
