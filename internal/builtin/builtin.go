// Package builtin has what only cloche's own backends ask of the supervisor: sandboxes
// made by a list of system calls, the broker, the init and warm sessions. The contract
// for all backends is package backend.
package builtin

import (
	"fmt"

	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// RuleGit is the rule of gaps about git directories in what can be written: git
// outside would run the hooks and settings that a command leaves there.
const RuleGit = "git"

// Extras are the fields of a launch that only built-in backends set.
type Extras struct {
	// Options are what the program reads from a descriptor instead of from its arguments,
	// for people to read: values of variables are left out.
	Options []string `json:"options,omitempty"`
	// Init: the program ends up as the init of package initprog (pid 1 of its own pid
	// namespace), which speaks the status protocol.
	Init bool `json:"init,omitempty"`
	// Adopts: that init has no pid namespace. It adopts the processes that the command
	// leaves behind and ends them when its lifeline is lost. Killing the init would set
	// them free. Limits that a user namespace would count are sampled.
	Adopts bool `json:"adopts,omitempty"`
	// MapRoot starts the program in a user namespace where every id is mapped to itself.
	// It needs root.
	MapRoot bool `json:"map_root,omitempty"`
	// SealNodes starts the program in a mount namespace where the host's device nodes are
	// on read-only mounts, for a program that shows them and cannot make them read-only
	// itself. It needs root.
	SealNodes bool `json:"seal_nodes,omitempty"`
	// Program is a list of system calls that runs instead of a program file, for native and
	// landlock. It makes the sandbox in a new process and ends by executing the init.
	// Namespaces are the flags of that process's clone. Its descriptors are the standard
	// ones, the extra ones, then the launch's files.
	Program    *sysprog.Program `json:"-"`
	Namespaces uint64           `json:"namespaces,omitempty"`
	// Holds names the namespaces, as in /proc/PID/ns or AllNamespaces, that the supervisor
	// opens before the program's last steps. It is for launches that park a sandbox.
	Holds []string `json:"holds,omitempty"`
	// Tagged: the command itself is executed, in a pid namespace that it shares. The
	// processes that it starts are known by a UTS namespace of its own, whose inode the
	// program reports.
	Tagged bool `json:"tagged,omitempty"`
	// Awaits: the init starts without a command and gets it later: Path, Args, Env and Dir.
	// The rest of the launch is the same for many commands and can be made before one is
	// asked for. InitStatus is then a socket, over which the command comes and the program
	// sends the listener of a Guard.
	Awaits bool     `json:"awaits,omitempty"`
	Args   []string `json:"args,omitempty"`
	// MustExist are paths that the launch covers. If one of them is gone, the plan has to
	// be made again.
	MustExist []string `json:"must_exist,omitempty"`
	// CreateDirs are folders in cloche's own store that are made before the start.
	CreateDirs []string `json:"create_dirs,omitempty"`
	// Network: the supervisor makes the network of the sandbox before the command runs, in
	// a namespace that the program sends to it. The launch of a command has a file of the
	// kind NetworkHandover for that; one that parks a sandbox is asked while it waits.
	Network bool `json:"network,omitempty"`
	// PrivateTmp: the supervisor makes a folder for the run and removes it afterwards. It
	// passes the path to the program as the parameter of that name ("-D NAME=path"), and
	// sets TMPDIR to it unless Env has one.
	PrivateTmp string `json:"private_tmp,omitempty"`
	// Profile is the macOS sandbox profile that is among Argv, for people to read.
	Profile string `json:"-"`
	// Guard, unless nil, says what the broker does while the command runs.
	Guard *Guard `json:"guard,omitempty"`
}

// A Guard says which calls of the command the broker makes itself, so that rules about
// names are enforced. The launch has a file of the kind Listener.
type Guard struct {
	// Roots are the folders inside in which the command can change nothing itself: the
	// broker creates, opens for writing, moves and removes files for it.
	Roots []string `json:"roots"`
	// Reads: opens for reading go through the broker too.
	Reads bool `json:"reads,omitempty"`
	// Connects: the broker connects the command's sockets, so that it reaches only granted
	// sockets of the host.
	Connects bool `json:"connects,omitempty"`
	// Datagrams: the broker denies unix datagram sockets, which can send to a socket of the
	// host without being connected.
	Datagrams bool `json:"datagrams,omitempty"`
	// Records says which opens for reading the broker only observes, so that those of
	// hidden files are recorded. The kernel completes them.
	Records policy.Recording `json:"records,omitempty"`
}

// A FileKind says what a descriptor of a launch is.
type FileKind int

// The kinds of descriptor. Source and Data are public, in package backend.
const (
	// Source is a path of the host, opened without following any symbolic link
	// and compared with the kind that the plan expects.
	Source FileKind = iota
	// Data is a file with given content.
	Data
	// BwrapStatus is the end of a pipe on which bwrap reports as JSON.
	BwrapStatus
	// InitStatus is the end of a pipe on which the init reports.
	InitStatus
	// Lifeline is the end of a pipe whose other end only the supervisor holds:
	// end of file means that the supervisor is gone.
	Lifeline
	// Program is a program to execute, with given content.
	Program
	// Namespace is a namespace of a parked sandbox. The file's path is its name in
	// /proc/PID/ns, or AllNamespaces.
	Namespace
	// Ruleset is the Landlock ruleset of a parked sandbox. A launch that parks a sandbox
	// gets a socket to send the ruleset; one that enters it gets the ruleset.
	Ruleset
	// Listener is the end of a socket on which the launched program sends the listener of
	// its filter: see Guard.
	Listener
	// NetworkHandover is the end of a socket on which the launched program sends its
	// network namespace. It then waits for one byte, which says that the network is ready;
	// end of file says that there will be none.
	NetworkHandover
	// Ready is the end of a pipe on which the launched program writes one byte when the
	// sandbox is made and the command is about to be executed in it.
	Ready
)

// AllNamespaces stands for all namespaces of a parked sandbox's first process: its pidfd.
const AllNamespaces = "*"

var fileKindNames = [...]string{"source", "data", "bwrap-status", "init-status", "lifeline", "program", "namespace", "ruleset", "listener", "network-handover", "ready"}

// MarshalText writes the kind's name.
func (k FileKind) MarshalText() ([]byte, error) {
	if k < 0 || int(k) >= len(fileKindNames) {
		return nil, fmt.Errorf("unknown kind of descriptor %d", int(k))
	}
	return []byte(fileKindNames[k]), nil
}

// Sharing is how much the commands of a warm session share with each other.
type Sharing int

// The ways of sharing.
const (
	// Apart: each command has its own processes, /proc, IPC objects and temporary folders.
	// The network namespace and the layout of files are shared.
	Apart Sharing = iota
	// Together: commands share those as well, and see and signal each other.
	Together
)
