// Package host describes a machine: facts and the outcomes of live probes, collected once into
// a [Snapshot] that is plain data. All decisions take a Snapshot as input, so that they can be
// repeated elsewhere: a snapshot printed by `cloche doctor --json` on one machine is a test
// case on another.
package host

import (
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// A Kind is the type of the file at a path. Its String is missing, dir, file, symlink, socket,
// device, or other for everything else.
type Kind = hostfs.Kind

// A Snapshot is what cloche knows about the machine and the caller.
type Snapshot struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	User   string `json:"user"`
	// Home is the caller's home folder, symlinks not resolved.
	Home string `json:"home"`
	// Homes are further home folders of the caller: the one in the user database, if $HOME is
	// another.
	Homes []string `json:"homes,omitempty"`
	// Others are the home folders of other users.
	Others []string `json:"others,omitempty"`
	// Cwd is the working folder, symlinks resolved.
	Cwd string `json:"cwd"`
	// Self is the program that made the snapshot, symlinks resolved; empty if it is not
	// known.
	Self string `json:"self,omitempty"`
	// MemoryTotal is the machine's memory in bytes.
	MemoryTotal int64 `json:"memory_total"`
	// Container names the container runtime that cloche runs in, or is empty.
	Container string `json:"container,omitempty"`
	// Dirs are the folders with cloche's own files.
	Dirs Dirs `json:"dirs"`

	// Namespaces are the facts about user namespaces.
	Namespaces struct {
		// User is whether an unprivileged user namespace can be created and used.
		User Probe `json:"user"`
		// MaxUser is user.max_user_namespaces, -1 where there is no such file.
		MaxUser int64 `json:"max_user"`
		// UnprivilegedClone is kernel.unprivileged_userns_clone (Debian), -1 if absent.
		UnprivilegedClone int64 `json:"unprivileged_clone"`
		// AppArmorRestrict is kernel.apparmor_restrict_unprivileged_userns (Ubuntu), -1 if absent.
		AppArmorRestrict int64 `json:"apparmor_restrict"`
	} `json:"namespaces"`
	// Native is whether a test sandbox of the native backend worked here.
	Native   Probe    `json:"native"`
	Landlock Landlock `json:"landlock"`
	Bwrap    Bwrap    `json:"bwrap"`
	// Cgroup describes the control groups.
	Cgroup struct {
		Version     string   `json:"version"` // "v1", "v2", "hybrid", or "" for none
		Controllers []string `json:"controllers,omitempty"`
		Delegated   bool     `json:"delegated"` // the caller may create groups
	} `json:"cgroup"`
	// Review is whether the working folder can be shown copy-on-write, with the changes in cloche's
	// state folder. Only `cloche doctor` tries it.
	Review Probe `json:"review,omitzero"`
	// Seatbelt is whether the macOS sandbox confined a test process here.
	Seatbelt Probe `json:"seatbelt,omitzero"`
	// UnixDiagnostics is whether the kernel reports which paths unix sockets are bound to. The
	// broker needs this to recognize the command's own sockets.
	UnixDiagnostics Probe `json:"unix_diagnostics,omitzero"`
	// Networking are the facts that a user-mode network depends on. Except for Hostname, they
	// are only collected for policies with such a network.
	Networking struct {
		// TUN and Veth are whether this caller could create such a device in a network
		// namespace of its own.
		TUN  Probe `json:"tun,omitzero"`
		Veth Probe `json:"veth,omitzero"`
		// Hostname is the machine's name. The command sees the same name.
		Hostname string `json:"hostname,omitempty"`
		// NameService is the text of /etc/nsswitch.conf, or empty if there is none.
		NameService string `json:"name_service,omitempty"`
	} `json:"networking,omitzero"`
	// LSMs are the kernel's active security modules.
	LSMs []string `json:"lsms,omitempty"`

	// Sockets are the unix sockets with a path that are bound on the host now.
	Sockets []string `json:"sockets,omitempty"`
	// Datagrams are the datagram sockets of Sockets that were bound by an absolute path.
	Datagrams []string `json:"datagrams,omitempty"`
	// Environ is the caller's environment as "NAME=value". Values may be
	// secrets: they are never printed, see EnvNames.
	Environ []string `json:"-"`
	// EnvNames are the names in Environ.
	EnvNames []string `json:"env_names,omitempty"`
	// Found are the results of the searches for files that a policy hides by name; nil if
	// there were no searches.
	Found []*hostfs.Found `json:"found,omitempty"`
	// searching, unless nil, waits for searches that still run: see SearchWith.
	searching func() []*hostfs.Found
	// FS is the file tree.
	FS hostfs.FS `json:"-"`
}

// Dirs are the folders where cloche keeps its own files.
type Dirs struct {
	Config string `json:"config"` // policy.yaml
	Data   string `json:"data"`   // grants, trust, persisted folders
	State  string `json:"state"`  // audit
	Cache  string `json:"cache"`  // outcomes of probes
}

// Landlock describes the kernel's Landlock. ABI 0 means that there is none.
type Landlock struct {
	ABI    int    `json:"abi"`
	Reason string `json:"reason,omitempty"` // why there is none
	// Probe is whether the backend landlock confined a test process here.
	Probe Probe `json:"probe,omitzero"`
}

// Bwrap describes the bubblewrap program, if there is one.
type Bwrap struct {
	Path    string `json:"path,omitempty"` // empty: not found
	Version string `json:"version,omitempty"`
	Setuid  bool   `json:"setuid,omitempty"`
	// Features are the options that cloche can use and this bwrap has, such as "bind-fd",
	// "json-status-fd", "disable-userns", "seccomp".
	Features []string `json:"features,omitempty"`
	// MapRoot: root can start this bwrap in a user namespace that maps every id to itself, and
	// it then makes a sandbox. Without that, root's sandboxes know only uid 0 and cannot
	// access files of other users.
	MapRoot bool `json:"map_root,omitempty"`
	// Probe is whether it made a test sandbox here.
	Probe Probe `json:"probe"`
}

// Has reports whether this bwrap has the option of that name.
func (b Bwrap) Has(feature string) bool { return slices.Contains(b.Features, feature) }

// An Outcome is the answer of a probe. The zero value is Unknown.
type Outcome int

// The outcomes. Only Yes and No are conclusive and may be remembered.
const (
	Unknown Outcome = iota // not probed, or inconclusive (timeout, out of memory)
	Yes
	No
)

var outcomeNames = []string{"unknown", "yes", "no"}

// String returns the outcome's name.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return "invalid"
	}
	return outcomeNames[o]
}

// MarshalText writes the outcome's name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads an outcome's name.
func (o *Outcome) UnmarshalText(b []byte) error {
	*o = Outcome(max(0, slices.Index(outcomeNames, string(b))))
	return nil
}

// A Probe is the outcome of one live probe with its reason.
type Probe struct {
	Outcome Outcome `json:"outcome"`
	// Cause classifies a No, if the cause is a known one: missing, userns, userns-sysctl,
	// apparmor, container, mount, too-old, untrusted, nested or unsupported-os.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Fix is what a person can do about a No, in one line.
	Fix string `json:"fix,omitempty"`
}

// Getenv returns the value of a variable in the snapshot's environment. Of several with the
// same name, the last one wins.
func (s *Snapshot) Getenv(name string) (string, bool) {
	if strings.IndexByte(name, '=') >= 0 {
		return "", false
	}
	for _, kv := range slices.Backward(s.Environ) {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:], true
		}
	}
	return "", false
}

// SetEnviron sets Environ and EnvNames.
func (s *Snapshot) SetEnviron(environ []string) {
	s.Environ, s.EnvNames = environ, make([]string, 0, len(environ))
	for _, kv := range environ {
		if n, _, ok := strings.Cut(kv, "="); ok && n != "" {
			s.EnvNames = append(s.EnvNames, n)
		}
	}
	slices.Sort(s.EnvNames)
	s.EnvNames = slices.Compact(s.EnvNames)
}

// Live reports whether the snapshot is of this machine, not a recorded one.
func (s *Snapshot) Live() bool {
	_, ok := s.FS.(hostfs.OS)
	return ok
}

// SearchWith gives the snapshot searches that still run, so that decisions which need no
// search can be made meanwhile. wait returns what they found. Each copy of the snapshot calls
// it at most once, so it must return the same result every time.
func (s *Snapshot) SearchWith(wait func() []*hostfs.Found) { s.searching = wait }

// Searching reports whether the snapshot has searches, finished or not.
func (s *Snapshot) Searching() bool { return s.searching != nil || s.Found != nil }

// FoundFiles waits for searches that still run, and returns Found.
func (s *Snapshot) FoundFiles() []*hostfs.Found {
	if s.searching != nil {
		s.Found, s.searching = s.searching(), nil
	}
	return s.Found
}
