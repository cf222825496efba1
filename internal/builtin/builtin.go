// Package builtin defines what only cloche's own backends need from the supervisor: sandboxes
// made by a list of system calls, the broker, the init and warm sessions. The contract for all
// backends is package backend.
package builtin

import (
	"fmt"

	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// RuleGit is the rule name of gaps about git directories in writable folders: git outside
// would run the hooks and settings that a command leaves there.
const RuleGit = "git"

// Extras are the fields of a launch that only built-in backends set.
type Extras struct {
	// Options are what the program reads from a descriptor instead of its arguments, for
	// people to read. Values of variables are left out.
	Options []string `json:"options,omitempty"`
	// Init: the program finally executes the init of package initprog (pid 1 of a new pid
	// namespace), which uses the status protocol.
	Init bool `json:"init,omitempty"`
	// Adopts: the init has no pid namespace. It adopts the processes that the command leaves
	// behind and kills them when its lifeline closes. So the init must not be killed: those
	// processes would then live on. Limits that a user namespace would count are enforced by
	// sampling.
	Adopts bool `json:"adopts,omitempty"`
	// MapRoot starts the program in a user namespace where every id is mapped to itself.
	// It needs root.
	MapRoot bool `json:"map_root,omitempty"`
	// SealNodes starts the program in a mount namespace where the host's device nodes are on
	// read-only mounts. It is for a program that shows the nodes and cannot make them
	// read-only itself. It needs root.
	SealNodes bool `json:"seal_nodes,omitempty"`
	// Program is a list of system calls that runs instead of a program file, for native and
	// landlock. It makes the sandbox in a new process and finally executes the init.
	// Namespaces are the clone flags of that process. Its descriptors are the standard ones,
	// the extra ones, then the launch's files.
	Program    *sysprog.Program `json:"-"`
	Namespaces uint64           `json:"namespaces,omitempty"`
	// Holds names the namespaces, as in /proc/PID/ns or AllNamespaces, that the supervisor
	// opens before the program's last steps. It is for launches that prepare a sandbox for a
	// warm session ("park" it).
	Holds []string `json:"holds,omitempty"`
	// Tagged: the command itself is executed, without an init, in a pid namespace that it
	// shares. Its processes are recognized by their UTS namespace, which is new for each
	// command and whose inode the program reports.
	Tagged bool `json:"tagged,omitempty"`
	// Awaits: the init starts without a command and receives Path, Args, Env and Dir later.
	// The rest of the launch is the same for many commands and can be prepared before one is
	// requested. InitStatus is then a socket: the supervisor sends the command over it, and
	// the program sends the listener of a Guard.
	Awaits bool     `json:"awaits,omitempty"`
	Args   []string `json:"args,omitempty"`
	// MustExist are paths that the launch mounts something on. If one of them is gone, the
	// plan has to be made again.
	MustExist []string `json:"must_exist,omitempty"`
	// CreateDirs are folders in cloche's own store that are created before the start.
	CreateDirs []string `json:"create_dirs,omitempty"`
	// Network: the supervisor sets up the sandbox's network before the command runs, in a
	// namespace that the program sends to it. The launch of a command has a file of the kind
	// NetworkHandover for that. A launch that parks a sandbox sends the namespace on request
	// while it waits.
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

// A Guard says which system calls of the command the broker makes itself, so that rules about
// names are enforced. The launch has a file of the kind Listener.
type Guard struct {
	// Roots are paths inside where the command cannot change anything itself: the broker
	// creates, opens for writing, moves and removes files for it.
	Roots []string `json:"roots"`
	// Reads: the broker also makes the opens for reading.
	Reads bool `json:"reads,omitempty"`
	// Connects: the broker connects the command's sockets, so that the command reaches only
	// granted sockets of the host.
	Connects bool `json:"connects,omitempty"`
	// Datagrams: the broker denies unix datagram sockets, which can send to a socket of the
	// host without being connected.
	Datagrams bool `json:"datagrams,omitempty"`
	// Records says which opens for reading the broker only observes, to record denials of
	// hidden files. The kernel completes these calls.
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
	// Lifeline is the end of a pipe whose other end only the supervisor holds. End of file
	// means that the supervisor has ended.
	Lifeline
	// Program is a program to execute, with given content.
	Program
	// Namespace is a namespace of a parked sandbox. The file's path is its name in
	// /proc/PID/ns, or AllNamespaces.
	Namespace
	// Ruleset is the Landlock ruleset of a parked sandbox. A launch that parks a sandbox gets
	// a socket on which it sends the ruleset; a launch that enters the sandbox gets the
	// ruleset itself.
	Ruleset
	// Listener is the end of a socket on which the launched program sends the listener of
	// its filter: see Guard.
	Listener
	// NetworkHandover is the end of a socket on which the launched program sends its network
	// namespace. The program then waits for one byte, which means that the network is ready.
	// End of file means that there will be no network.
	NetworkHandover
	// Ready is the end of a pipe. The launched program writes one byte to it when the sandbox
	// is made and the command is about to be executed.
	Ready
)

// AllNamespaces stands for all namespaces of a parked sandbox's first process. They are
// entered through its pidfd.
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
	// Together: commands share those as well, and can see and signal each other.
	Together
)
