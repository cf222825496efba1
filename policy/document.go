package policy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// version is the version of the file format.
const version = 1

// A Document is the content of one policy file, one preset or one set of options, before the
// layers are merged. [Parse] and [ParseIn] read one from text; with no text they return an
// empty document, which [Document.Set] fills. [Merge] makes a [Policy] from documents.
type Document struct {
	content document
	// checking: several goroutines may merge a document, and the first one checks it.
	checking sync.Mutex
}

// check checks the document, if that was not done yet.
func (d *Document) check() error {
	d.checking.Lock()
	defer d.checking.Unlock()
	return d.content.check()
}

// A document has one field for each key of a policy file. A nil field is not set, so
// the value of a lower layer stays.
type document struct {
	Version         *int             `json:"version,omitempty" jsonschema:"The version of the file format. Only 1 exists."`
	Enabled         *bool            `json:"enabled,omitempty" jsonschema:"False runs the command without a sandbox, with a notice."`
	Sandbox         *bool            `json:"sandbox,omitempty" jsonschema:"Shorthand for enabled."`
	Presets         []string         `json:"presets,omitzero" jsonschema:"The presets that this policy starts from. Default: workspace."`
	Reads           *Reads           `json:"reads,omitempty" jsonschema:"What can be read: host is everything that is not hidden; system is the system folders and what is granted."`
	Paths           *pathsSection    `json:"paths,omitempty" jsonschema:"The rules for the file system. The longest match wins."`
	Binds           []Bind           `json:"binds,omitempty" jsonschema:"Host paths shown inside, also at another path: path, path:ro, src:dst or src:dst:ro."`
	Persist         []string         `json:"persist,omitempty" jsonschema:"Folders that are writable inside. Their content is kept in cloche's own store, separate from the real folders."`
	Remap           *string          `json:"remap,omitempty" jsonschema:"Where the workspace appears inside, for example /workspace."`
	Tmp             *Tmp             `json:"tmp,omitempty" jsonschema:"The /tmp that the command sees: private is its own, shared is the host's."`
	Review          *reviewName      `json:"review,omitempty" jsonschema:"True, or the name of a review: what the command writes goes aside, copy-on-write, until a person applies or discards it with cloche review."`
	Home            *homeSection     `json:"home,omitempty" jsonschema:"The home folder: the value of $HOME, and whether the real folder is visible."`
	Hosts           *string          `json:"hosts,omitempty" jsonschema:"The text of /etc/hosts inside. Default: the names of the loopback and of the machine; in mode host, the host's file."`
	Network         *networkSection  `json:"network,omitempty" jsonschema:"What can be reached. True is the host's network, false is none."`
	Secrets         []Secret         `json:"secrets,omitempty" jsonschema:"Values that the command can use in requests to some hosts and cannot read: NAME@HOST, a preset such as gh, or a mapping. Not allowed in a project's file: only you say where your secrets go."`
	Env             *envSection      `json:"env,omitempty" jsonschema:"Which variables the command sees."`
	Sockets         []Socket         `json:"sockets,omitempty" jsonschema:"Unix sockets that may be connected to, each matched exactly: a path, @name for an abstract one, ssh-agent or gpg-agent. datagrams lets the command create unix datagram sockets."`
	Bus             *busSection      `json:"bus,omitempty" jsonschema:"What can be reached on the session bus. True shows the bus and no name on it."`
	Limits          *limitsSection   `json:"limits,omitempty" jsonschema:"What one run may use. Each limit may be unlimited."`
	AllowPrivileged *bool            `json:"allow_privileged,omitempty" jsonschema:"Keep the capabilities that the caller has (root only)."`
	Require         *Strength        `json:"require,omitempty" jsonschema:"What happens if a rule cannot be enforced: strict does not run, best-effort runs and reports each gap."`
	Denials         *Recording       `json:"denials,omitempty" jsonschema:"Which denials are recorded. usual: every change, and reads of most programs. thorough: every read too, which is slower. changes: no reads."`
	Warm            *bool            `json:"warm,omitempty" jsonschema:"False gives each command of an agent a new sandbox, also behind cloche agent exec, where commands of one agent otherwise share a warm one."`
	Backend         *backendSection  `json:"backend,omitempty" jsonschema:"How the policy is enforced: auto, required, or one backend's name."`
	Fallback        *Fallback        `json:"fallback,omitempty" jsonschema:"What happens if no backend works: refuse to run, or warn and run without a sandbox."`
	Ask             *askSection      `json:"ask,omitempty" jsonschema:"Who decides about denied operations, with cloche run --ask. Not allowed in a project's file: a workspace does not choose who decides about it."`
	Backends        *backendsSection `json:"backends,omitempty" jsonschema:"Settings of single backends."`
	Tests           []testEntry      `json:"tests,omitempty" jsonschema:"Claims about this policy that cloche policy test checks."`

	// Name is what origins and errors call the document: a file's path,
	// "preset NAME", or a few words.
	Name string `json:"-"`
	// Base is the absolute folder that relative paths start from. Without one
	// a relative path is an error.
	Base string `json:"-"`

	// origins are the positions of the fields, by their names in errors. An origin without a
	// source is in this document.
	origins map[string]Origin
	// checked is set once paths are joined to Base and entries are checked.
	checked bool
}

// pathsSection lists paths by their access.
type pathsSection struct {
	Write []PathRule `json:"write,omitempty" jsonschema:"Paths that may be read and written."`
	Read  []PathRule `json:"read,omitempty" jsonschema:"Paths that may be read."`
	Hide  []PathRule `json:"hide,omitempty" jsonschema:"Paths that are neither read nor written."`
	// HideFound are names of files that are hidden where a search finds them.
	HideFound []PathRule `json:"hide_found,omitempty" jsonschema:"Files of the workspace that are hidden if they exist when a command starts, at any depth: **/NAME, where NAME may contain * and ?. Unlike a pattern under hide, this costs nothing while the command runs and does not apply to files that are created later."`
	Protect   []PathRule `json:"protect,omitempty" jsonschema:"Paths in a writable folder that cannot be created, changed or removed."`
	// ProtectUnlessUnder are folders in which the patterns of Protect do not apply.
	ProtectUnlessUnder []Exemption `json:"protect_unless_under,omitempty" jsonschema:"Folders in which patterns under protect do not apply: a name such as node_modules, at any depth below a writable folder, or a path."`
}

// A pathList is one list of a pathsSection, with the properties that all its rules share.
type pathList struct {
	name, field    string // "write", "paths.write"
	rules          *[]PathRule
	access         Access
	protect, found bool
}

// lists returns the lists of rules, in the order of a policy file.
func (s *pathsSection) lists() []pathList {
	if s == nil {
		return nil
	}
	return []pathList{
		{name: "write", field: "paths.write", rules: &s.Write, access: Write},
		{name: "read", field: "paths.read", rules: &s.Read, access: Read},
		{name: "hide", field: "paths.hide", rules: &s.Hide, access: Hidden},
		{name: "hide_found", field: "paths.hide_found", rules: &s.HideFound, access: Hidden, found: true},
		{name: "protect", field: "paths.protect", rules: &s.Protect, access: Read, protect: true},
	}
}

// homeSection separates the value of $HOME from the visibility of the home folder.
type homeSection struct {
	Value   *string `json:"value,omitempty" jsonschema:"The value of $HOME inside. Default: the real one."`
	Visible *bool   `json:"visible,omitempty" jsonschema:"False hides the real home folder, except for what other rules grant."`
}

// networkSection is the network part of a document. In a file it may also be a
// boolean or a mode's name.
type networkSection struct {
	Mode    *NetworkMode    `json:"mode,omitempty" jsonschema:"How much network there is. An allow list without a mode means user."`
	Link    *Link           `json:"link,omitempty" jsonschema:"How packets leave in mode user. Default: auto, the best of tun, veth and proxy that works."`
	Allow   []hostEntry     `json:"allow,omitempty" jsonschema:"Hosts that may be reached in mode user: host, *.host, host:port, an address, a CIDR, udp://host:port, http://host/path, or * for every public host."`
	Deny    []hostEntry     `json:"deny,omitempty" jsonschema:"Hosts that may not be reached, whatever allow says."`
	Publish []publishedPort `json:"publish,omitempty" jsonschema:"Ports inside that the host can connect to: [ADDRESS:]HOSTPORT[:INSIDEPORT][/udp]."`
	Forward []forwardedPort `json:"forward,omitempty" jsonschema:"Ports of the host's loopback that the command can connect to: PORT[:INSIDEPORT][/udp]."`
}

// envSection is the environment part of a document.
type envSection struct {
	Policy *EnvMode          `json:"policy,omitempty" jsonschema:"Which of the caller's variables pass. list: only those under pass. scrubbed (the default): the usual ones, and those that name certificates such as SSL_CERT_FILE. inherit: all. Secrets and addresses of sockets never pass."`
	Pass   []string          `json:"pass,omitempty" jsonschema:"Variables that pass from the caller. A name may end in *."`
	Set    map[string]string `json:"set,omitempty" jsonschema:"Variables with the given values."`
}

// limitsSection is the limits part of a document.
type limitsSection struct {
	Time      *duration `json:"time,omitempty" jsonschema:"Wall time, for example 10m."`
	Output    *size     `json:"output,omitempty" jsonschema:"Standard output and error together, for example 10MiB."`
	Memory    *size     `json:"memory,omitempty" jsonschema:"Resident memory of the whole tree, for example 4GiB."`
	Processes *count    `json:"processes,omitempty" jsonschema:"Processes and threads."`
	OpenFiles *count    `json:"open_files,omitempty" jsonschema:"Open files of one process."`
	FileSize  *size     `json:"file_size,omitempty" jsonschema:"The size of one file."`
}

// backendSection chooses a backend. In a file it may also be the name alone.
type backendSection struct {
	Name     *string   `json:"name,omitempty" jsonschema:"auto, required, or one backend's name."`
	Fallback *Fallback `json:"fallback,omitempty" jsonschema:"What happens if no backend works: refuse to run, or warn and run without a sandbox."`
}

// askSection says who decides about denied operations, if the front end asks anybody.
type askSection struct {
	Hook    *string   `json:"hook,omitempty" jsonschema:"A program that decides, such as an editor's. It gets the request as JSON and runs outside the sandbox. An absolute path, or one that begins with ~/."`
	Timeout *duration `json:"timeout,omitempty" jsonschema:"How long a denied operation waits for a decision, for example 10m."`
}

// backendsSection configures single backends.
type backendsSection struct {
	Bwrap *bwrapSection `json:"bwrap,omitempty" jsonschema:"The bubblewrap backend."`
}

// bwrapSection configures the bubblewrap backend.
type bwrapSection struct {
	Path      *string  `json:"path,omitempty" jsonschema:"The binary. Default: bwrap in PATH. It must not be in a folder that commands can write."`
	ExtraArgs []string `json:"extra_args,omitempty" jsonschema:"Arguments added before the command."`
}

// Set sets a field to a value in the form of a policy file, or adds the value to the
// field if that is a list: Set("paths.write", "?/srv/data", "--rw ?/srv/data"). The
// field is named by its keys; "env.set.NAME" sets a variable. The source is what
// errors and origins call the value, for example an option as typed.
func (d *Document) Set(field, value, source string) error {
	doc := &d.content
	doc.checked = false
	v := reflect.ValueOf(doc).Elem()
	for rest := field; rest != ""; {
		if v.Kind() == reflect.Map {
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			v.SetMapIndex(reflect.ValueOf(rest), reflect.ValueOf(value))
			doc.setSource(field, source)
			return nil
		}
		key, after, _ := strings.Cut(rest, ".")
		index, ok := fieldsOf(v.Type())[key]
		if !ok {
			return unknownKey(key, v.Type())
		}
		if v = v.Field(index); v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		rest = after
	}
	if v.Kind() == reflect.Slice {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		field = indexed(field, v.Len()-1)
		v = v.Index(v.Len() - 1)
	}
	doc.setSource(field, source)
	tag := "!!str"
	if value == "true" || value == "false" {
		tag = "!!bool"
	}
	return setScalar(v, tag, value)
}

// setSource records where a field, and the sections around it, come from.
func (d *document) setSource(field, source string) {
	if d.origins == nil {
		d.origins = map[string]Origin{}
	}
	for ; field != ""; field = parentField(field) {
		d.origins[field] = Origin{Source: source}
	}
}

// A Setting is one value of a [Document], or one entry of one of its lists.
type Setting struct {
	// Field is named by its keys, for example "paths.write".
	Field string
	// Value is written to JSON in the form of a policy file.
	Value any
	// Item: the field is a list, and this is one entry of it.
	Item bool
}

// Settings returns everything that the document sets, in the order of a policy file. Relative
// paths are joined to the document's folder.
func (d *Document) Settings() ([]Setting, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return appendSettings(nil, "", reflect.ValueOf(&d.content).Elem()), nil
}

func appendSettings(list []Setting, field string, v reflect.Value) []Setting {
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if key := keyOf(v.Type().Field(i)); key != "" && !v.Field(i).IsZero() {
				list = appendSettings(list, joinField(field, key), v.Field(i))
			}
		}
	case v.Kind() == reflect.Slice && v.Len() > 0:
		for i := range v.Len() {
			list = append(list, Setting{field, v.Index(i).Interface(), true})
		}
	case v.Kind() == reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(v.Interface().(map[string]string))) {
			list = append(list, Setting{joinField(field, key), v.MapIndex(reflect.ValueOf(key)).Interface(), false})
		}
	default:
		list = append(list, Setting{field, reflect.Indirect(v).Interface(), false})
	}
	return list
}

// origin returns the origin of a field, or else that of the closest section around it,
// without a layer.
func (d *document) origin(field string) Origin {
	for {
		if o, ok := d.origins[field]; ok {
			return o.in(d.Name)
		}
		if field == "" {
			return Origin{Source: d.Name}
		}
		field = parentField(field)
	}
}

// parentField returns the field around another one: "a.b[0]" is in "a.b", which is in "a",
// which is in the whole document, "".
func parentField(field string) string {
	for i := len(field) - 1; i > 0; i-- {
		if field[i] == '.' || field[i] == '[' {
			return field[:i]
		}
	}
	return ""
}
