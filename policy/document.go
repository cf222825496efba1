package policy

import (
	"maps"
	"slices"
)

// Version is the version of the file form that this package reads.
const Version = 1

// A Document is the file form of a policy, before layers are merged: what one
// file, one preset or one command line says. A nil field is "not set", so that
// a lower layer's value stays.
//
// Documents come from [Parse] and [ParseIn], or are built in Go (flags of a
// command). [Merge] checks those that were built in Go by the same rules.
type Document struct {
	Version         *int             `json:"version,omitempty" jsonschema:"The version of the file format. Only 1 exists."`
	Enabled         *bool            `json:"enabled,omitempty" jsonschema:"False runs the command without a sandbox, with a notice."`
	Sandbox         *bool            `json:"sandbox,omitempty" jsonschema:"Shorthand for enabled."`
	Presets         []string         `json:"presets,omitzero" jsonschema:"The presets that this policy starts from. Default: workspace."`
	Reads           *Reads           `json:"reads,omitempty" jsonschema:"What can be read: host is everything that is not hidden; system is the system folders and what is granted."`
	Paths           *PathsSection    `json:"paths,omitempty" jsonschema:"The rules for the file system. The longest match wins."`
	Binds           []BindEntry      `json:"binds,omitempty" jsonschema:"Host paths shown inside, also at another path: path, path:ro, src:dst or src:dst:ro."`
	Persist         []string         `json:"persist,omitempty" jsonschema:"Folders that are writable inside. Their content is kept in cloche's own store, separate from the real folders."`
	Remap           *string          `json:"remap,omitempty" jsonschema:"Where the workspace appears inside, for example /workspace."`
	Tmp             *Tmp             `json:"tmp,omitempty" jsonschema:"The /tmp that the command sees: private is its own, shared is the host's."`
	Home            *HomeSection     `json:"home,omitempty" jsonschema:"The home folder: the value of $HOME, and whether the real folder is visible."`
	Hosts           *string          `json:"hosts,omitempty" jsonschema:"The text of /etc/hosts inside. Default: the names of the loopback and of the machine; in mode host, the host's file."`
	Network         *NetworkSection  `json:"network,omitempty" jsonschema:"What can be reached. True is the host's network, false is none."`
	Env             *EnvSection      `json:"env,omitempty" jsonschema:"Which variables the command sees."`
	Sockets         []SocketEntry    `json:"sockets,omitempty" jsonschema:"Unix sockets that may be connected to, each matched exactly: a path, @name for an abstract one, ssh-agent or gpg-agent. datagrams lets the command create unix datagram sockets."`
	Bus             *BusSection      `json:"bus,omitempty" jsonschema:"What can be reached on the session bus. True shows the bus and no name on it."`
	Limits          *LimitsSection   `json:"limits,omitempty" jsonschema:"What one run may use. Each limit may be unlimited."`
	AllowPrivileged *bool            `json:"allow_privileged,omitempty" jsonschema:"Keep the capabilities that the caller has (root only)."`
	Require         *Strength        `json:"require,omitempty" jsonschema:"What happens if a rule cannot be enforced: strict does not run, best-effort runs and reports each gap."`
	Denials         *Recording       `json:"denials,omitempty" jsonschema:"Which denials are recorded. usual: every change, and reads of most programs. thorough: every read too, which is slower. changes: no reads."`
	Backend         *BackendSection  `json:"backend,omitempty" jsonschema:"How the policy is enforced: auto, required, or one backend's name."`
	Fallback        *Fallback        `json:"fallback,omitempty" jsonschema:"What happens if no backend works: refuse to run, or warn and run without a sandbox."`
	Ask             *AskSection      `json:"ask,omitempty" jsonschema:"Who decides about denied operations, with cloche run --ask. Not allowed in a project's file: a workspace does not choose who decides about it."`
	Backends        *BackendsSection `json:"backends,omitempty" jsonschema:"Settings of single backends."`
	Tests           []TestEntry      `json:"tests,omitempty" jsonschema:"Claims about this policy that cloche policy test checks."`

	// Name is what origins and errors call the document: a file's path,
	// "preset NAME", or a few words.
	Name string `json:"-"`
	// Base is the absolute folder that relative paths start from. Without one
	// a relative path is an error.
	Base string `json:"-"`

	// marks are the positions of the fields, by their names in errors.
	marks map[string]mark
	// rules stand for Paths in a compiled preset: they are the same for every
	// policy, and copying them is all that merging has to do.
	rules []PathRule
	// checked is set once paths are joined to Base and entries are checked.
	checked bool
}

// PathsSection lists paths by what they may be used for.
type PathsSection struct {
	Write []PathEntry `json:"write,omitempty" jsonschema:"Paths that may be read and written."`
	Read  []PathEntry `json:"read,omitempty" jsonschema:"Paths that may be read."`
	Hide  []PathEntry `json:"hide,omitempty" jsonschema:"Paths that are neither read nor written."`
	// HideFound are names of files that are hidden where they are found.
	HideFound []PathEntry `json:"hide_found,omitempty" jsonschema:"Files of the workspace that are hidden if they exist when a command starts, at any depth: **/NAME, where NAME may contain * and ?. Unlike a pattern under hide, this costs nothing while the command runs and does not apply to files that are created later."`
	Protect   []PathEntry `json:"protect,omitempty" jsonschema:"Paths in a writable folder that cannot be created, changed or removed."`
	// ProtectUnlessUnder are folders in which the patterns of Protect do not hold.
	ProtectUnlessUnder []ExemptEntry `json:"protect_unless_under,omitempty" jsonschema:"Folders in which patterns under protect do not apply: a name such as node_modules, at any depth below a writable folder, or a path."`
}

// HomeSection separates the value of $HOME from the sight of the home folder.
type HomeSection struct {
	Value   *string `json:"value,omitempty" jsonschema:"The value of $HOME inside. Default: the real one."`
	Visible *bool   `json:"visible,omitempty" jsonschema:"False hides the real home folder, except for what other rules grant."`
}

// NetworkSection is the network part of a document. In a file it may also be a
// boolean or a mode's name.
type NetworkSection struct {
	Mode    *NetworkMode `json:"mode,omitempty" jsonschema:"How much network there is. An allow list without a mode means user."`
	Link    *Link        `json:"link,omitempty" jsonschema:"How packets leave in mode user. Default: auto, the best of tun, veth and proxy that works."`
	Allow   []HostEntry  `json:"allow,omitempty" jsonschema:"Hosts that may be reached in mode user: host, *.host, host:port, an address, a CIDR, udp://host:port, http://host/path, or * for every public host."`
	Deny    []HostEntry  `json:"deny,omitempty" jsonschema:"Hosts that may not be reached, whatever allow says."`
	Publish []PortEntry  `json:"publish,omitempty" jsonschema:"Ports inside that the host can connect to: [ADDRESS:]HOSTPORT[:INSIDEPORT][/udp]."`
	Forward []PortEntry  `json:"forward,omitempty" jsonschema:"Ports of the host's loopback that the command can connect to: PORT[:INSIDEPORT][/udp]."`
}

// EnvSection is the environment part of a document.
type EnvSection struct {
	Policy *EnvMode          `json:"policy,omitempty" jsonschema:"Which of the caller's variables pass. list: only those under pass. scrubbed (the default): the usual ones, and those that name certificates such as SSL_CERT_FILE. inherit: all. Secrets and addresses of sockets never pass."`
	Pass   []string          `json:"pass,omitempty" jsonschema:"Variables that pass from the caller. A name may end in *."`
	Set    map[string]string `json:"set,omitempty" jsonschema:"Variables with the given values."`
}

// LimitsSection is the limits part of a document.
type LimitsSection struct {
	Time      *Duration `json:"time,omitempty" jsonschema:"Wall time, for example 10m."`
	Output    *Size     `json:"output,omitempty" jsonschema:"Standard output and error together, for example 10MiB."`
	Memory    *Size     `json:"memory,omitempty" jsonschema:"Resident memory of the whole tree, for example 4GiB."`
	Processes *Count    `json:"processes,omitempty" jsonschema:"Processes and threads."`
	OpenFiles *Count    `json:"open_files,omitempty" jsonschema:"Open files of one process."`
	FileSize  *Size     `json:"file_size,omitempty" jsonschema:"The size of one file."`
}

// BackendSection chooses a backend. In a file it may also be the name alone.
type BackendSection struct {
	Name     *string   `json:"name,omitempty" jsonschema:"auto, required, or one backend's name."`
	Fallback *Fallback `json:"fallback,omitempty" jsonschema:"What happens if no backend works: refuse to run, or warn and run without a sandbox."`
}

// AskSection says who is asked about what is refused, where somebody is.
type AskSection struct {
	Hook    *string   `json:"hook,omitempty" jsonschema:"A program that decides, such as an editor's. It gets the request as JSON and runs outside the sandbox. An absolute path, or one that begins with ~/."`
	Timeout *Duration `json:"timeout,omitempty" jsonschema:"How long a denied operation waits for a decision, for example 10m."`
}

// BackendsSection configures single backends.
type BackendsSection struct {
	Bwrap *BwrapSection `json:"bwrap,omitempty" jsonschema:"The bubblewrap backend."`
}

// BwrapSection configures the bubblewrap backend.
type BwrapSection struct {
	Path      *string  `json:"path,omitempty" jsonschema:"The binary. Default: bwrap in PATH. It must not be in a folder that commands can write."`
	ExtraArgs []string `json:"extra_args,omitempty" jsonschema:"Arguments added before the command."`
}

// A mark is where a field was written.
type mark struct {
	source       string // empty: the document's name
	line, column int
}

// SetSource says where a field of a document built in Go comes from, for
// example a flag as typed. The field is named as in errors: "paths.write[0]",
// "network.mode", "env.set.CI".
func (d *Document) SetSource(field, source string) {
	if d.marks == nil {
		d.marks = map[string]mark{}
	}
	d.marks[field] = mark{source: source}
}

// markOf returns the mark of a field, or else that of the closest section
// around it.
func (d *Document) markOf(field string) mark {
	for {
		if m, ok := d.marks[field]; ok {
			return m
		}
		if field == "" {
			return mark{}
		}
		field = parentField(field)
	}
}

// parentField is the field around another: "a.b[0]" is in "a.b", which is in
// "a", which is in the whole document, "".
func parentField(field string) string {
	for i := len(field) - 1; i > 0; i-- {
		if field[i] == '.' || field[i] == '[' {
			return field[:i]
		}
	}
	return ""
}

// origin is the Origin of a field of the document.
func (l Layered) origin(field string) Origin {
	m := l.Doc.markOf(field)
	if m.source == "" {
		m.source = l.Doc.Name
	}
	return Origin{Layer: l.Layer, Source: m.source, Line: m.line, Column: m.column, Untrusted: l.Untrusted}
}

// clone copies all that check may change, so that the caller's document stays
// as it is.
func (d *Document) clone() *Document {
	c := *d
	if d.Paths != nil {
		c.Paths = &PathsSection{
			Write: slices.Clone(d.Paths.Write), Read: slices.Clone(d.Paths.Read),
			Hide: slices.Clone(d.Paths.Hide), HideFound: slices.Clone(d.Paths.HideFound), Protect: slices.Clone(d.Paths.Protect),
			ProtectUnlessUnder: slices.Clone(d.Paths.ProtectUnlessUnder),
		}
	}
	c.Binds = slices.Clone(d.Binds)
	c.Persist = slices.Clone(d.Persist)
	c.Sockets = slices.Clone(d.Sockets)
	c.Tests = slices.Clone(d.Tests)
	c.marks = maps.Clone(d.marks)
	if d.Network != nil {
		n := *d.Network
		n.Allow, n.Deny = slices.Clone(n.Allow), slices.Clone(n.Deny)
		n.Publish, n.Forward = slices.Clone(n.Publish), slices.Clone(n.Forward)
		c.Network = &n
	}
	return &c
}
