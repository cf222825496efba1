package seccomp

import (
	"slices"
	"strings"
)

// A Rule denies some calls if all of its terms hold; without terms, always.
type Rule struct {
	// Name says what is denied, Reason what that prevents, and Errno is what the call
	// returns.
	Name, Reason string
	Errno        Errno

	calls  []string
	terms  []term
	notify bool // it asks the listener instead; such rules come last
	// reported: with NotifyDenied the listener gets the call, to record it and to give
	// the error. It is for calls that programs make seldom, and fail without.
	reported bool
}

// deny returns the rule that the calls are denied.
func deny(name, reason string, errno Errno, calls ...string) Rule {
	return Rule{Name: name, Reason: reason, Errno: errno, calls: calls}
}

// where returns the rule for calls for which all of the terms hold.
func (r Rule) where(terms ...term) Rule {
	r.terms = terms
	return r
}

// report returns the rule with its calls reported.
func (r Rule) report() Rule {
	r.reported = true
	return r
}

// value returns what the filter returns if the rule holds.
func (r *Rule) value() uint32 {
	if r.notify {
		return retAsk
	}
	return retErrno | uint32(r.Errno)
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

// highHalf returns t for the high 32 bits of the argument.
func highHalf(t term) term {
	t.high = true
	return t
}

// rulesFor returns the rules that o asks for. If several are about one call, the first
// whose terms hold gives the error.
func rulesFor(o Options) []Rule {
	var list []Rule
	if !o.AllowNamespaces {
		list = slices.Concat(namespaceRules(), mountRules())
	}
	list = slices.Concat(list, kernelRules(), hostRules(), processRules())
	if o.DenyOthers {
		list = append(list, otherRules()...)
	}
	list = slices.Concat(list, volumeRules(), terminalRules(), deviceRules())
	if !o.AllowSetuidBits {
		list = append(list, setuidRules(o)...)
	}
	if o.OneOwner {
		list = append(list, ownerRules(o)...)
	}
	if o.DenyIPC {
		list = append(list, ipcRule())
	}
	list = append(list, socketRules(o)...)
	if o.LeaveDenied {
		list = slices.DeleteFunc(list, func(r Rule) bool { return r.reported })
	}
	for i := range list {
		list[i].notify = list[i].reported && o.Notify&NotifyDenied != 0
	}
	return list
}

// namespaceFlags are the flags of clone(2) and unshare(2) for new namespaces, by what they make.
var namespaceFlags = []struct {
	bit  uint32
	name string
}{
	{0x10000000, "user"},
	{0x20000000, "pid"},
	{0x40000000, "network"},
	{0x00020000, "mount"},
	{0x08000000, "IPC"},
	{0x04000000, "UTS"},
	{0x02000000, "cgroup"},
}

// NewNamespaces says which namespaces a call of clone or unshare makes, for example "new user and
// pid namespaces". It is empty for other calls.
func NewNamespaces(call string, args [6]uint64) string {
	if call != "clone" && call != "unshare" {
		return ""
	}
	var names []string
	for _, f := range namespaceFlags {
		if uint32(args[0])&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	switch n := len(names); n {
	case 0:
		return ""
	case 1:
		return "new " + names[0] + " namespace"
	default:
		return "new " + strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " namespaces"
	}
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
func namespaceRules() []Rule {
	const (
		name   = "namespaces"
		reason = "a namespace of its own gives the command capabilities, and with them the least hardened parts of the kernel"
	)
	return []Rule{
		deny(name, reason, EPERM, "clone").where(bits(0, newNamespace)).report(),
		// Known harmless flags are let through instead of known harmful ones
		// denied: since 2026 unshare has a flag for a new mount namespace
		// (UNSHARE_EMPTY_MNTNS) that is none of the CLONE_NEW flags.
		deny(name, reason, EPERM, "unshare").where(bits(0, ^uint32(unshareOwn))).report(),
		deny(name, reason, EPERM, "setns").report(),
		// The flags are behind a pointer. C libraries and language runtimes
		// take ENOSYS for a kernel before 5.3 and use clone.
		deny(name, reason, ENOSYS, "clone3"),
		deny("host name", "a privileged run without its own UTS namespace would rename the host", EPERM, "sethostname", "setdomainname"),
	}
}

// mountRules deny changes of the file tree, which is what the sandbox is made
// of: a umount takes a mask away.
func mountRules() []Rule {
	const (
		name   = "mounts"
		reason = "mounting and unmounting could take the sandbox's masks away or show the host's files elsewhere"
	)
	return []Rule{
		deny(name, reason, EPERM, "mount", "umount2", "pivot_root", "chroot").report(),
		// ENOSYS, as from a kernel before 5.2: libmount then uses mount(2)
		// and reports its EPERM.
		deny(name, reason, ENOSYS,
			"fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
	}
}
