package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloche-dev/cloche/policy"
)

// A typed flag is one policy flag as the user wrote it.
type typed struct {
	spec  *flagSpec
	value string
}

// A flagSpec is one flag that says something about the policy.
type flagSpec struct {
	name, placeholder, group, usage string
	// apply puts the value into the document under construction.
	apply func(b *documentBuilder, value string) error
	// values are what can be written, for completion.
	values func() []string
}

// sessionFlags are the flags that run, shell, explain, check, status and policy
// share: everything that a session is made from.
type sessionFlags struct {
	policyFiles  []string
	workspace    string
	chdir        string
	document     string
	capabilities string
	noProject    bool
	typed        []typed
}

// add defines the flags on a command.
func (s *sessionFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	stringsFlag(f, &s.policyFiles, "policy", "FILE", groupPolicy, "use the policy in FILE, above the user's and the project's; may be repeated")
	for i := range policyFlags {
		if policyFlags[i].group == groupPolicy {
			s.addSpec(f, &policyFlags[i])
		}
	}
	textFlag(f, &s.capabilities, "capabilities", "FILE", groupPolicy, "use the declaration {net, write_paths, read_paths, env} in FILE, as JSON")
	boolFlag(f, &s.noProject, "no-project", groupPolicy, "do not look for a project's .cloche.yaml")
	textFlag(f, &s.workspace, "workspace", "DIR", groupPaths, "the folder to work on (default: that of .cloche.yaml, else the top of the git work tree, else the working folder)")
	textFlag(f, &s.chdir, "chdir", "DIR", groupPaths, "start in DIR (default: the working folder if it is in the workspace, else the workspace)")
	textFlag(f, &s.document, "document", "DIR", groupPaths, "the folder that urn:cloche:document stands for")
	for i := range policyFlags {
		if policyFlags[i].group != groupPolicy {
			s.addSpec(f, &policyFlags[i])
		}
	}
}

func (s *sessionFlags) addSpec(f *pflag.FlagSet, spec *flagSpec) {
	v := &policyValue{spec: spec, to: &s.typed}
	flag := f.VarPF(v, spec.name, "", spec.usage)
	if spec.bare() {
		flag.NoOptDefVal = "true"
	}
}

// A policyValue notes each use of one flag, in the order of the command line.
type policyValue struct {
	spec *flagSpec
	to   *[]typed
}

func (v *policyValue) heading() string { return v.spec.group }

// String returns nothing: a policy flag has no default.
func (v *policyValue) String() string { return "" }

// Type is the word that stands for the value in help texts.
func (v *policyValue) Type() string {
	if v.spec.placeholder == "" {
		return "bool"
	}
	return v.spec.placeholder
}

// Set notes a value, if it can be read.
func (v *policyValue) Set(value string) error {
	if err := v.spec.apply(newDocumentBuilder("", ""), value); err != nil {
		return err
	}
	*v.to = append(*v.to, typed{v.spec, value})
	return nil
}

// source is the flag as typed, for the origins of rules. The value of a
// variable may be a secret and is left out.
func (t typed) source() string {
	value := t.value
	if name, _, ok := strings.Cut(value, "="); ok && t.spec.name == "env" {
		value = name + "=…"
	}
	if t.spec.bare() {
		return t.spec.bareSource(value)
	}
	return "--" + t.spec.name + " " + value
}

// policyFlags are the flags that become a policy document.
var policyFlags = [...]flagSpec{
	{"preset", "NAME", groupPolicy, "start from these presets (comma-separated): see cloche policy presets", applyPreset, policy.Presets},
	{"ro", "PATH", groupPaths, "let PATH be read; a leading ? allows it to be missing", pathFlag("read"), nil},
	{"rw", "PATH", groupPaths, "let PATH be read and written", pathFlag("write"), nil},
	{"hide", "PATH", groupPaths, "hide PATH, or what matches if it is a glob", pathFlag("hide"), nil},
	{"protect", "PATH", groupPaths, "keep PATH as it is inside a writable folder, also if it does not exist yet", pathFlag("protect"), nil},
	{"bind", "SPEC", groupPaths, "show a path of the host inside: path, path:ro, src:dst or src:dst:ro", applyBind, nil},
	{"persist", "PATH", groupPaths, "make PATH a folder of the sandbox's own that is kept from run to run", applyPersist, nil},
	{"remap", "PATH", groupPaths, "show the workspace at PATH inside", applyRemap, nil},
	{"tmp", "KIND", groupPaths, "whose /tmp it is: private or shared", applyTmp, names("private", "shared")},
	{"net", "MODE[:LINK]", groupNetwork, "how much network there is: none, loopback, user or host; user may name its link: tun, veth or proxy", applyNet,
		names("none", "loopback", "user", "host", "user:tun", "user:veth", "user:proxy")},
	{"allow", "HOST[:PORT]", groupNetwork, "let HOST be reached: a name, '*.name', '*' for all that is public, an address or CIDR, udp://HOST:PORT, http://HOST/PATH; implies --net user", applyAllow, nil},
	{"deny", "HOST[:PORT]", groupNetwork, "never let HOST be reached, whatever is allowed", applyDeny, nil},
	{"publish", "PORT[:INSIDE]", groupNetwork, "let the host connect to a port inside; ADDR: before it for others than the host itself, /udp behind it for UDP", applyPublish, nil},
	{"forward", "PORT[:INSIDE]", groupNetwork, "let the command connect to a port of the host's loopback; /udp behind it for UDP", applyForward, nil},
	{"socket", "PATH", groupNetwork, "let the unix socket PATH be connected to, or the abstract one @NAME; datagrams lets the command have unix datagram sockets", applySocket, nil},
	{"bus", "[=NAME,…]", groupNetwork, "show the session bus, filtered, and let these names on it be talked to", applyBus, nil},
	{"ssh-agent", "", groupNetwork, "let the ssh-agent of SSH_AUTH_SOCK be used", agentFlag(policy.SSHAgent), nil},
	{"gpg-agent", "", groupNetwork, "let the gpg-agent be used, by its restricted socket", agentFlag(policy.GPGAgent), nil},
	{"env", "NAME[=VALUE]", groupEnv, "pass the variable NAME, or set it", applyEnv, nil},
	{"env-policy", "POLICY", groupEnv, "which variables pass: scrubbed, inherit or list", applyEnvPolicy, names("scrubbed", "inherit", "list")},
	{"timeout", "TIME", groupLimits, "end the command after TIME, such as 90s or 10m", limitFlag("time"), nil},
	{"max-output", "SIZE", groupLimits, "end the command when it has printed SIZE, such as 10MiB", limitFlag("output"), nil},
	{"memory", "SIZE", groupLimits, "bound the memory of the command and all that it starts", limitFlag("memory"), nil},
	{"pids", "N", groupLimits, "bound the number of processes and threads", limitFlag("processes"), nil},
	{"open-files", "N", groupLimits, "bound the open files of one process", limitFlag("open_files"), nil},
	{"file-size", "SIZE", groupLimits, "bound the size of one file", limitFlag("file_size"), nil},
	{"backend", "NAME", groupBackend, "what enforces the policy: auto, required, native, bwrap, landlock, seatbelt or none", applyBackend, names("auto", "required", "native", "bwrap", "landlock", "seatbelt", "none")},
	{"fallback", "KIND", groupBackend, "where no backend works: refuse, or warn and run unconfined", applyFallback, names("refuse", "warn")},
	{"denials", "WHICH", groupPolicy, "which refusals are on record: usual, thorough (every read, slower) or changes (no reads)", applyDenials, names("usual", "thorough", "changes")},
	{"best-effort", "", groupBackend, "run even if a rule cannot be enforced, and say which", applyBestEffort, nil},
}

func names(n ...string) func() []string { return func() []string { return n } }

// The helpers below define flags whose help is grouped and whose placeholder is
// one word.

type textValue struct {
	flagGroup
	to          *string
	placeholder string
}

func (v *textValue) String() string         { return "" }
func (v *textValue) Type() string           { return v.placeholder }
func (v *textValue) Set(value string) error { *v.to = value; return nil }

func textFlag(f *pflag.FlagSet, to *string, name, placeholder, group, usage string) {
	f.VarP(&textValue{flagGroup(group), to, placeholder}, name, "", usage)
}

type stringsValue struct {
	flagGroup
	to          *[]string
	placeholder string
}

func (v *stringsValue) String() string         { return "" }
func (v *stringsValue) Type() string           { return v.placeholder }
func (v *stringsValue) Set(value string) error { *v.to = append(*v.to, value); return nil }

func stringsFlag(f *pflag.FlagSet, to *[]string, name, placeholder, group, usage string) {
	f.VarP(&stringsValue{flagGroup(group), to, placeholder}, name, "", usage)
}

type boolValue struct {
	flagGroup
	to *bool
}

func (v *boolValue) String() string { return strconv.FormatBool(*v.to) }
func (v *boolValue) Type() string   { return "bool" }
func (v *boolValue) Set(value string) (err error) {
	*v.to, err = strconv.ParseBool(value)
	return err
}

func boolFlag(f *pflag.FlagSet, to *bool, name, group, usage string) {
	f.VarPF(&boolValue{flagGroup(group), to}, name, "", usage).NoOptDefVal = "true"
}

type numberValue struct {
	flagGroup
	to          *int
	placeholder string
}

func (v *numberValue) String() string { return "" }
func (v *numberValue) Type() string   { return v.placeholder }
func (v *numberValue) Set(value string) (err error) {
	*v.to, err = strconv.Atoi(value)
	return err
}

func numberFlag(f *pflag.FlagSet, to *int, name, short, placeholder, group, usage string) {
	f.VarP(&numberValue{flagGroup(group), to, placeholder}, name, short, usage)
}
