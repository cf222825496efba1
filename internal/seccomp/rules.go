package seccomp

// A rule denies some calls where all of its terms hold; without terms, always.
type rule struct {
	name   string
	calls  []string
	terms  []term
	when   string // the terms in words
	errno  Errno
	reason string
	notify bool // it asks the listener instead; such rules come last
	// told: with NotifyDenied the listener is handed the call, to record it and to give
	// the error. It is for calls that programs make seldom, and fail without.
	told bool
}

// value returns what the filter returns where the rule holds.
func (r *rule) value() uint32 {
	if r.notify {
		return retAsk
	}
	return retErrno | uint32(r.errno)
}

// A term is a condition on the low 32 bits of one argument.
type term struct {
	arg    int
	high   bool   // the high 32 bits instead
	mask   uint32 // applied first; 0 is none
	test   test
	values []uint32
}

// A test is how a term compares.
type test int

const (
	hasBits  test = iota // one of the bits of values[0] is set
	isOneOf              // equal to one of the values
	isNoneOf             // different from all of the values
)

// bits returns the term that argument arg has one of the bits.
func bits(arg int, b uint32) term { return term{arg: arg, test: hasBits, values: []uint32{b}} }

// oneOf returns the term that argument arg is one of the values.
func oneOf(arg int, values ...uint32) term { return term{arg: arg, test: isOneOf, values: values} }

// noneOf returns the term that argument arg is none of the values.
func noneOf(arg int, values ...uint32) term { return term{arg: arg, test: isNoneOf, values: values} }

// without returns the term that argument arg has none of the bits.
func without(arg int, b uint32) term { return oneOf(arg, 0).masked(b) }

// masked returns t with the mask applied to the argument first.
func (t term) masked(mask uint32) term {
	t.mask = mask
	return t
}

// rulesFor returns the rules that o asks for. Where several speak of one call,
// the first whose terms hold gives the error.
func rulesFor(o Options) []rule {
	var list []rule
	if !o.AllowNamespaces {
		list = append(list, namespaceRules()...)
		list = append(list, mountRules()...)
	}
	list = append(list, kernelRules()...)
	list = append(list, hostRules()...)
	list = append(list, processRules(o)...)
	list = append(list, volumeRules()...)
	list = append(list, terminalRules()...)
	list = append(list, deviceRules()...)
	if !o.AllowSetuidBits {
		list = append(list, setuidRules(o)...)
	}
	if o.OneOwner {
		list = append(list, ownerRules(o)...)
	}
	if o.DenyIPC {
		list = append(list, ipcRules()...)
	}
	list = append(list, socketRules(o)...)
	for i := range list {
		list[i].notify = list[i].told && o.Notify&NotifyDenied != 0
	}
	return list
}

// Flags of clone(2) and unshare(2).
const (
	// newNamespace has CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID
	// and NEWNET. CLONE_NEWTIME is not a flag of clone: its bit belongs to the
	// signal there.
	newNamespace = 0x7e020000
	// unshareOwn has the flags of unshare that concern the process alone:
	// CLONE_VM, FS, FILES, SIGHAND, THREAD and SYSVSEM.
	unshareOwn = 0x00050f00
)

// namespaceRules deny new namespaces. In a user namespace of its own a process
// has every capability, and with them mounts, packet filters and raw sockets:
// code that has given away root on the host again and again.
func namespaceRules() []rule {
	const (
		name   = "namespaces"
		reason = "a namespace of its own gives the command capabilities, and with them the least hardened parts of the kernel"
	)
	return []rule{
		{
			name: name, calls: []string{"clone"}, errno: EPERM, reason: reason, told: true,
			terms: []term{bits(0, newNamespace)}, when: "with a CLONE_NEW flag",
		},
		{
			// Known harmless flags are let through instead of known harmful ones
			// denied: since 2026 unshare has a flag for a new mount namespace
			// (UNSHARE_EMPTY_MNTNS) that is none of the CLONE_NEW flags.
			name: name, calls: []string{"unshare"}, errno: EPERM, reason: reason, told: true,
			terms: []term{bits(0, ^uint32(unshareOwn))}, when: "of more than memory, files and signals",
		},
		{name: name, calls: []string{"setns"}, errno: EPERM, reason: reason, told: true},
		{
			// The flags are behind a pointer. C libraries and language runtimes
			// take ENOSYS for a kernel before 5.3 and use clone.
			name: name, calls: []string{"clone3"}, errno: ENOSYS, reason: reason,
		},
		{
			name: "host name", calls: []string{"sethostname", "setdomainname"}, errno: EPERM,
			reason: "a privileged run without its own UTS namespace would rename the host",
		},
	}
}

// mountRules deny changes of the file tree, which is what the sandbox is made
// of: a umount takes a mask away.
func mountRules() []rule {
	const (
		name   = "mounts"
		reason = "mounting and unmounting could take the sandbox's masks away or show the host's files elsewhere"
	)
	return []rule{
		{name: name, calls: []string{"mount", "umount2", "pivot_root", "chroot"}, errno: EPERM, reason: reason, told: true},
		{
			// ENOSYS, as from a kernel before 5.2: libmount then uses mount(2)
			// and reports its EPERM.
			name: name, errno: ENOSYS, reason: reason,
			calls: []string{
				"fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "open_tree_attr", "move_mount", "mount_setattr",
			},
		},
	}
}
