// Package host describes a machine: facts and the outcomes of live probes,
// gathered once into a [Snapshot] that is plain data. Everything that decides
// takes a Snapshot as input, so that a decision can be repeated elsewhere: a
// snapshot printed by `cloche doctor --json` on one machine is a test case on
// another.
package host

import (
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// A Kind is what a path is. Its String is missing, dir, file, symlink, socket, device, or
// other for everything else.
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
	// Homes are further home folders of the caller: the one of the user
	// database, where $HOME says another.
	Homes []string `json:"homes,omitempty"`
	// Others are the home folders of other people.
	Others []string `json:"others,omitempty"`
	// Cwd is the working folder, symlinks resolved.
	Cwd string `json:"cwd"`
	// Self is the program that made the snapshot, symlinks resolved; empty if it is not
	// known.
	Self string `json:"self,omitempty"`
	// MemoryTotal is the machine's memory in bytes.
	MemoryTotal int64 `json:"memory_total"`
	// Container names the container runtime around us, or is empty.
	Container string `json:"container,omitempty"`
	// Dirs are the folders of cloche's own files.
	Dirs Dirs `json:"dirs"`

	// Namespaces are the facts about user namespaces.
	Namespaces struct {
		// User is whether an unprivileged user namespace can be made and used.
		User Probe `json:"user"`
		// MaxUser is user.max_user_namespaces, -1 where there is no such file.
		MaxUser int64 `json:"max_user"`
		// UnprivilegedClone is kernel.unprivileged_userns_clone (Debian), -1 if absent.
		UnprivilegedClone int64 `json:"unprivileged_clone"`
		// AppArmorRestrict is kernel.apparmor_restrict_unprivileged_userns (Ubuntu), -1 if absent.
		AppArmorRestrict int64 `json:"apparmor_restrict"`
	} `json:"namespaces"`
	// Native is whether the native backend really made a sandbox here.
	Native   Probe    `json:"native"`
	Landlock Landlock `json:"landlock"`
	Bwrap    Bwrap    `json:"bwrap"`
	// Cgroup is the control-group set-up.
	Cgroup struct {
		Version     string   `json:"version"` // "v1", "v2", "hybrid", or "" for none
		Controllers []string `json:"controllers,omitempty"`
		Delegated   bool     `json:"delegated"` // the caller may make groups of its own
	} `json:"cgroup"`
	// Seatbelt is whether macOS's sandbox really confined a process here.
	Seatbelt Probe `json:"seatbelt,omitzero"`
	// UnixDiagnostics is whether the kernel tells which files unix sockets are bound
	// to, by which a broker knows the command's own.
	UnixDiagnostics Probe `json:"unix_diagnostics,omitzero"`
	// Networking are the facts that a user-mode network depends on. Only policies with
	// such a network fill it in, but for the hostname.
	Networking struct {
		// TUN and Veth are whether such a device could really be made, by this caller
		// in a namespace of its own.
		TUN  Probe `json:"tun,omitzero"`
		Veth Probe `json:"veth,omitzero"`
		// Hostname is the machine's name, which the command sees, too.
		Hostname string `json:"hostname,omitempty"`
		// NameService is the text of /etc/nsswitch.conf, empty if there is none.
		NameService string `json:"name_service,omitempty"`
	} `json:"networking,omitzero"`
	// LSMs are the kernel's active security modules.
	LSMs []string `json:"lsms,omitempty"`

	// Sockets are the unix sockets with a path that are bound on the host now.
	Sockets []string `json:"sockets,omitempty"`
	// Datagrams are those of them that were bound by an absolute path and are for
	// datagrams.
	Datagrams []string `json:"datagrams,omitempty"`
	// Environ is the caller's environment as "NAME=value". Values may be
	// secrets: they are never printed, see EnvNames.
	Environ []string `json:"-"`
	// EnvNames are the names in Environ.
	EnvNames []string `json:"env_names,omitempty"`
	// Found are what searches for the files found that a policy hides by their
	// names; nil where there were none.
	Found []*hostfs.Found `json:"found,omitempty"`
	// searching, unless nil, waits for searches that are under way: see SearchWith.
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

// Landlock is the kernel's Landlock; ABI 0 is none.
type Landlock struct {
	ABI    int    `json:"abi"`
	Reason string `json:"reason,omitempty"` // why there is none
	// Probe is whether the backend landlock really confined a process here.
	Probe Probe `json:"probe,omitzero"`
}

// Bwrap is the bubblewrap binary, if there is one.
type Bwrap struct {
	Path    string `json:"path,omitempty"` // empty: not found
	Version string `json:"version,omitempty"`
	Setuid  bool   `json:"setuid,omitempty"`
	// Features are the options that cloche cares about and this bwrap has, such
	// as "bind-fd", "json-status-fd", "disable-userns", "seccomp".
	Features []string `json:"features,omitempty"`
	// MapRoot: started by root inside a user namespace that maps every id to
	// itself, it made a sandbox. Without it root's sandboxes know only uid 0,
	// and files of other users are out of reach in them.
	MapRoot bool `json:"map_root,omitempty"`
	// Probe is whether it really made a sandbox here.
	Probe Probe `json:"probe"`
}

// Has reports whether this bwrap has the option of that name.
func (b Bwrap) Has(feature string) bool { return slices.Contains(b.Features, feature) }

// An Outcome is the answer of a probe. The zero value is "not known".
type Outcome int

// The outcomes. Only Yes and No are conclusive and may be remembered.
const (
	Unknown Outcome = iota // not asked, or asked and inconclusive (out of time, out of memory)
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
	// Cause classifies a No, if the reason is a known one: missing, userns, userns-sysctl,
	// apparmor, container, mount, too-old, untrusted, nested or unsupported-os.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Fix is what a person can do about a No, in one line.
	Fix string `json:"fix,omitempty"`
}

// Getenv looks a variable up in the snapshot's environment; the last one wins.
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

// SetEnviron sets the caller's environment, and the names of its variables.
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

// Live reports whether the snapshot is of this machine, and not a recorded one.
func (s *Snapshot) Live() bool {
	_, ok := s.FS.(hostfs.OS)
	return ok
}

// SearchWith gives the snapshot searches that are under way, so that what needs
// no search can be decided while they are. wait returns what they found; it is
// called at most once for each copy of the snapshot, and has to be repeatable.
func (s *Snapshot) SearchWith(wait func() []*hostfs.Found) { s.searching = wait }

// Searching reports whether the snapshot has searches, under way or not.
func (s *Snapshot) Searching() bool { return s.searching != nil || s.Found != nil }

// FoundFiles is Found, once the searches that are under way have ended.
func (s *Snapshot) FoundFiles() []*hostfs.Found {
	if s.searching != nil {
		s.Found, s.searching = s.searching(), nil
	}
	return s.Found
}
