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
	// one of them whatever its address is, which is in memory, too.
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

// Notified returns the calls that the listener of a filter for o may be asked
// about, in the order of their names.
func Notified(o Options) ([]string, error) {
	m, err := machineFor(o.Arch)
	if err != nil {
		return nil, err
	}
	denied := map[string]bool{}
	rules := rulesFor(o)
	for _, r := range rules {
		for _, call := range r.calls {
			denied[call] = denied[call] || len(r.terms) == 0 && !r.notify
		}
	}
	var list []string
	for _, r := range append(rules, notifyRules(o, m)...) {
		for _, call := range r.calls {
			if n, _ := m.number(call); r.notify && n != absent && !denied[call] {
				list = append(list, call)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Denied returns the name of a call of this architecture, and the rule by which the
// filter denies it, if that is one of those of NotifyDenied. It looks at what the filter
// looks at: numbers that the process cannot change any more.
func Denied(number int, args [6]uint64) (call string, denied Rule, ok bool) {
	m, err := machineFor("")
	if err != nil {
		return "", Rule{}, false
	}
	for _, r := range toldRules() {
		for _, name := range r.calls {
			if n, _ := m.number(name); n == number && r.holds(args) {
				return name, Rule{Name: r.name, Calls: r.calls, When: r.when, Errno: r.errno, Reason: r.reason}, true
			}
		}
	}
	return "", Rule{}, false
}

var toldRules = sync.OnceValue(func() []rule {
	return slices.DeleteFunc(rulesFor(Options{}), func(r rule) bool { return !r.told })
})

// holds reports whether the rule denies a call with the arguments.
func (r *rule) holds(args [6]uint64) bool {
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
func notifyRules(o Options, m machine) []rule {
	var list []rule
	if o.Notify&NotifyWrites != 0 {
		list = append(list, changeRules()...)
	}
	switch { // the widest holds for the others
	case o.Notify&(NotifyReads|NotifyEveryRead) != 0:
		list = append(list, readRules(0)...)
	case o.Notify&NotifyPlainReads != 0:
		list = append(list, plainReadRules(m)...)
	}
	if o.Notify&(NotifyWrites|NotifyReads) != 0 {
		list = append(list, ask([]string{"openat2"}))
	}
	if o.Notify&NotifyExec != 0 {
		list = append(list, ask([]string{"execve"}), ask([]string{"execveat"}, without(4, emptyPath)))
	}
	switch {
	case o.Notify&NotifyConnect != 0:
		list = append(list, connectRules()...)
	case o.Notify&NotifyDial != 0:
		list = append(list, ask([]string{"connect"}))
	}
	if o.Notify&NotifyDatagrams != 0 {
		list = append(list, datagramRule())
	}
	return list
}

// datagramRule looks at registers alone: no other thread can change what it saw.
func datagramRule() rule {
	return ask([]string{"socket", "socketpair"}, oneOf(0, familyUnix), oneOf(1, typeDgram, typeRaw).masked(typeMask))
}

// ask returns the rule that the listener decides the calls where the terms hold.
func ask(calls []string, terms ...term) rule {
	return rule{name: "notifications", calls: calls, terms: terms, notify: true}
}

func changeRules() []rule {
	return []rule{
		ask([]string{"open"}, bits(1, openWrites), without(1, openPath)),
		ask([]string{"openat"}, bits(2, openWrites), without(2, openPath)),
		ask([]string{
			"creat", "mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2", "link", "linkat",
			"symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "truncate", "bind",
			// Whoever performs the others has to know these.
			"umask", "landlock_restrict_self",
		}),
	}
}

// readRules are those for opens that only read, with none of the flags.
func readRules(flags uint32) []rule {
	none := openWrites | openPath | flags
	return []rule{
		ask([]string{"open"}, without(1, none)),
		ask([]string{"openat"}, without(2, none)),
	}
}

// plainReadRules are readRules for NotifyPlainReads.
func plainReadRules(m machine) []rule {
	list := readRules(m.openDirectory | m.openNoFollow)
	short := oneOf(0, 0)
	short.high = true
	for i := range list {
		if list[i].calls[0] == "openat" {
			list[i].terms = append(list[i].terms, short)
		}
	}
	return list
}

// connectRules look at both halves of the address: one of them may be zero.
func connectRules() []rule {
	high := noneOf(4, 0)
	high.high = true
	return []rule{
		ask([]string{"connect", "sendmsg", "sendmmsg"}),
		ask([]string{"sendto"}, noneOf(4, 0)),
		ask([]string{"sendto"}, high),
	}
}
