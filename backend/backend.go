// Package backend says how a plan is enforced. A [Backend] turns a plan into a
// [Launch], which is plain data: what to start, with which descriptors, and
// which parts of the plan it does not enforce. Backends do not start, watch or
// stop anything; one supervisor does that for all of them.
package backend

import (
	"errors"
	"fmt"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// Capabilities are what a backend can do, whatever the plan.
type Capabilities struct {
	// Mounts: it can show files that the host does not have, and files at another path.
	Mounts bool
}

// A Backend enforces plans. Its methods are safe for concurrent use.
type Backend interface {
	// Name is the name by which a policy chooses the backend.
	Name() string
	// Capabilities say what plans for the backend may count on.
	Capabilities() Capabilities
	// Available returns nil if the backend works on this machine, as shown by a
	// live probe; an *UnavailableError if it does not; any other error if that
	// could not be found out.
	Available(*host.Snapshot) error
	// Compile turns a plan into a launch. It is pure. Whatever the backend
	// cannot enforce it lists in Gaps; nothing is left out in silence.
	Compile(*plan.Plan, *host.Snapshot) (*Launch, error)
}

// An UnavailableError says why a backend cannot be used on this machine.
type UnavailableError struct {
	Backend string
	Probe   host.Probe
}

// Error names the backend, the reason and the fix.
func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("backend %s is not available: %s", e.Backend, e.Probe.Reason)
	if e.Probe.Fix != "" {
		s += " (" + e.Probe.Fix + ")"
	}
	return s
}

// ErrInconclusive is wrapped by the error of a probe that could not find out.
var ErrInconclusive = errors.New("inconclusive")

// RuleGit is the rule of gaps about git directories in what can be written: git
// outside would run the hooks and settings that a command leaves there.
const RuleGit = "git"

// A Gap is a part of the plan that a backend does not enforce here.
type Gap struct {
	// Rule names the part, in the words of a policy file: "paths.hide",
	// "network.mode", "limits.memory".
	Rule string `json:"rule"`
	// Subject is the path, host or value that the rule is about.
	Subject string `json:"subject,omitempty"`
	// Subjects are all of them, where Subject names only the first few.
	Subjects []string `json:"-"`
	// Reason says why it is not enforced.
	Reason string `json:"reason"`
	// Fix says what would close the gap.
	Fix string `json:"fix,omitempty"`
	// Optional: the rule asks to be held only where that can be. The gap is
	// reported, and also a strict policy runs with it.
	Optional bool          `json:"optional,omitempty"`
	Origin   policy.Origin `json:"origin"`
}

// String returns the gap as one line.
func (g Gap) String() string {
	s := g.Rule
	if g.Subject != "" {
		s += " " + g.Subject
	}
	s += " is not enforced: " + g.Reason
	if g.Fix != "" {
		s += " (" + g.Fix + ")"
	}
	return s
}

// A Launch is what the supervisor starts.
type Launch struct {
	// Backend is the name of the backend that made it.
	Backend string `json:"backend"`
	// Path is the program on the host, absolute; empty is Argv[0]. Argv are its
	// arguments, with Argv[0] the name it is called by.
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	// Options are what the program is told through a descriptor instead of
	// Argv, for people to read: values of variables are left out.
	Options []string `json:"options,omitempty"`
	// Env is the environment of that program, not nil even if empty: nothing of
	// the caller's environment may reach it unasked.
	Env []string `json:"-"`
	// Dir is its working folder on the host.
	Dir string `json:"dir"`
	// Files are its descriptors. The first has number FirstFD, the next one
	// more, and so on.
	Files   []File `json:"files,omitempty"`
	FirstFD int    `json:"first_fd,omitempty"`
	// Init: the program ends up as the init of package initprog (pid 1 of a pid
	// namespace of its own), which speaks the status protocol.
	Init bool `json:"init,omitempty"`
	// Adopts: that init has no pid namespace. It adopts what the command leaves
	// behind and ends it when its lifeline is lost; killing it would let all of
	// that go. Limits that a user namespace would count are sampled.
	Adopts bool `json:"adopts,omitempty"`
	// Confined is false only for the backend "none".
	Confined bool `json:"confined"`
	// MapRoot starts the program in a user namespace where every id is mapped
	// to itself. It needs root.
	MapRoot bool `json:"map_root,omitempty"`
	// SealNodes starts the program in a mount namespace where the host's device nodes
	// are on read-only mounts, for a program that shows them and cannot make them
	// read-only itself. It needs root.
	SealNodes bool `json:"seal_nodes,omitempty"`
	// Program is what runs instead of Path, for native and landlock: system calls
	// that make the sandbox in a new process and end in executing the init.
	// Namespaces are the flags of that process's clone. Its files are the
	// standard descriptors, the extra ones, then Files.
	Program    *sysprog.Program `json:"program,omitempty"`
	Namespaces uint64           `json:"namespaces,omitempty"`
	// Holds names the namespaces, as /proc/PID/ns has them or AllNamespaces, that
	// the supervisor takes hold of before the program's last steps: see [Warmer].
	Holds []string `json:"holds,omitempty"`
	// Tagged: the command itself is what is executed, in a pid namespace that it
	// shares. What it starts is known by a UTS namespace of its own, whose
	// inode the program hands back.
	Tagged bool `json:"tagged,omitempty"`
	// Awaits: the init is started with no command and gets it later: Path, Args, Env
	// and Dir. The rest of the launch is the same for many commands and can be
	// made before one is asked for. InitStatus is a socket then, over which the
	// command comes, and on which the program hands the listener of a Guard over.
	Awaits bool     `json:"awaits,omitempty"`
	Args   []string `json:"args,omitempty"`
	// MustExist are paths that the launch covers. Where one of them is gone,
	// the plan has to be made again.
	MustExist []string `json:"must_exist,omitempty"`
	// CreateDirs are folders in cloche's own store that are made before the start.
	CreateDirs []string `json:"create_dirs,omitempty"`
	// Network: the supervisor makes the network of the sandbox, in a namespace that
	// is handed to it, before the command runs. The launch of a command has a file
	// of the kind NetworkHandover for that; one that parks a sandbox is asked while
	// it waits.
	Network bool `json:"network,omitempty"`
	// PrivateTmp: the supervisor makes a folder for the run, which it removes
	// afterwards, hands its path to the program as the parameter of that name
	// ("-D NAME=path"), and sets TMPDIR to it unless Env has one.
	PrivateTmp string `json:"private_tmp,omitempty"`
	// Profile is the profile of macOS's sandbox that is among Argv, for people to
	// read.
	Profile string `json:"-"`
	// Guard, unless nil, is what the supervisor has to hold while the command runs.
	Guard *Guard `json:"guard,omitempty"`
	Gaps  []Gap  `json:"gaps,omitempty"`
}

// A Guard says which calls of the command the supervisor carries out itself, so
// that rules about names hold. The launch has a file of the kind Listener.
type Guard struct {
	// Roots are the folders inside in which the command can change nothing
	// itself: the supervisor makes, opens for writing, moves and removes for it.
	Roots []string `json:"roots"`
	// Reads: opens for reading come to the supervisor too.
	Reads bool `json:"reads,omitempty"`
	// Connects: the supervisor connects the command's sockets, so that no socket of
	// the host is connected to that was not granted.
	Connects bool `json:"connects,omitempty"`
	// Datagrams: the supervisor makes no unix datagram socket for the command: such a
	// one can send to a socket of the host without being connected.
	Datagrams bool `json:"datagrams,omitempty"`
	// Records says which opens for reading are only looked at, so that those of
	// hidden files are on record: the kernel goes on with them.
	Records policy.Recording `json:"records,omitempty"`
}

// A FileKind says what a descriptor of a Launch is.
type FileKind int

// The kinds of descriptor.
const (
	// Source is a path of the host, opened without following any symbolic link
	// and compared with the kind that the plan expects.
	Source FileKind = iota
	// Data is a file whose content is File.Data.
	Data
	// BwrapStatus is the end of a pipe on which bwrap reports as JSON.
	BwrapStatus
	// InitStatus is the end of a pipe on which the init reports.
	InitStatus
	// Lifeline is the end of a pipe whose other end only the supervisor holds:
	// end of file means that the supervisor is gone.
	Lifeline
	// Program is a program to execute whose bytes are File.Data.
	Program
	// Namespace is a namespace of a parked sandbox, by its name in /proc/PID/ns,
	// which is File.Path, or AllNamespaces.
	Namespace
	// Ruleset is the Landlock ruleset of a parked sandbox: to a launch that parks
	// one, a socket on which its program hands it over; to one that enters it, the
	// ruleset itself.
	Ruleset
	// Listener is the end of a socket on which the launched program hands over
	// the listener of its filter: see Launch.Guard.
	Listener
	// NetworkHandover is the end of a socket on which the launched program hands
	// over its network namespace and then waits for one byte, which says that the
	// network is there; end of file says that it will not be.
	NetworkHandover
	// Ready is the end of a pipe on which the launched program writes one byte once
	// the sandbox is made and the command is about to be executed in it.
	Ready
)

// A Beginner is a backend whose launches begin with the making of a process that
// does not depend on the plan, and takes long enough to be worth doing while the plan
// is made. Where the launch turns out to need another process, this one is discarded.
type Beginner interface {
	Backend
	// Begin makes the process of a launch for this policy on this machine.
	Begin(*policy.Policy, *host.Snapshot) (*sysprog.Ahead, error)
}

// AllNamespaces stands for those of a parked sandbox's first process: its pidfd.
const AllNamespaces = "*"

var fileKindNames = [...]string{"source", "data", "bwrap-status", "init-status", "lifeline", "program", "namespace", "ruleset", "listener", "network-handover", "ready"}

// MarshalText writes the kind's name.
func (k FileKind) MarshalText() ([]byte, error) {
	if k < 0 || int(k) >= len(fileKindNames) {
		return nil, fmt.Errorf("unknown kind of descriptor %d", int(k))
	}
	return []byte(fileKindNames[k]), nil
}

// A File is one descriptor that the launched program is given.
type File struct {
	Kind FileKind `json:"kind"`
	// Path and Want are for Source: what is opened and what it has to be. Path is
	// the name of a Namespace, too.
	Path string    `json:"path,omitempty"`
	Want host.Kind `json:"want,omitempty"`
	// Data is the content for Data. It is in no JSON: it may hold the
	// environment.
	Data []byte `json:"-"`
	// Origin is the rule behind a Source, for the error if it cannot be opened.
	Origin policy.Origin `json:"origin"`
}
