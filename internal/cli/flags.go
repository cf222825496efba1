package cli

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

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
	// field is the field of a policy file that the value belongs to. apply is for a flag whose
	// value has to be read first.
	field string
	apply applyFunc
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
	// caller is the process for which this one loads the policy, or 0: what was switched in its terminal counts.
	caller int
}

// add defines the flags on a command.
func (s *sessionFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	stringsFlag(f, &s.policyFiles, "policy", "FILE", groupPolicy, "add the policy in FILE, above the user's and the project's; may be repeated")
	for i := range policyFlags {
		if policyFlags[i].group == groupPolicy {
			s.addSpec(f, &policyFlags[i])
		}
	}
	textFlag(f, &s.capabilities, "capabilities", "FILE", groupPolicy, "take the policy from FILE, a JSON object with net, write_paths, read_paths and env")
	boolFlag(f, &s.noProject, "no-project", groupPolicy, "ignore the project's .cloche.yaml")
	textFlag(f, &s.workspace, "workspace", "DIR", groupPaths, "the folder that the command may write (default: the folder of .cloche.yaml, else the git worktree, else the working folder)")
	textFlag(f, &s.chdir, "chdir", "DIR", groupPaths, "start in DIR (default: the working folder if it is in the workspace, else the workspace)")
	textFlag(f, &s.document, "document", "DIR", groupPaths, "the folder that urn:cloche:document stands for")
	for i := range policyFlags {
		if policyFlags[i].group != groupPolicy {
			s.addSpec(f, &policyFlags[i])
		}
	}
}

// addSpec defines one policy flag. Each use is noted, if its value can be read, in the
// order of the command line.
func (s *sessionFlags) addSpec(f *pflag.FlagSet, spec *flagSpec) {
	values := spec.values
	if values == nil && !strings.HasPrefix(spec.placeholder, "PATH") && spec.placeholder != "SPEC" {
		values = names() // nothing, and not the files of the folder
	}
	v := &flagValue{group: spec.group, placeholder: spec.placeholder, values: values, set: func(value string) error {
		// The error of a flag quotes its value, which may be a secret. See commandDocument.
		if err := spec.put(&policy.Document{}, value, ""); err != nil && !spec.discreet() {
			return err
		}
		s.typed = append(s.typed, typed{spec, value})
		return nil
	}}
	flag := f.VarPF(v, spec.name, "", spec.usage)
	if spec.bare() {
		flag.NoOptDefVal = "true"
	}
}

// discreet reports whether what is behind "=" in a value may be a secret.
func (s *flagSpec) discreet() bool { return s.name == "env" || s.name == "secret" }

// source is the flag as typed, for the origins of rules. The value of a
// variable may be a secret and is left out.
func (t typed) source() string {
	value := t.value
	if name, _, ok := strings.Cut(value, "="); ok && t.spec.discreet() {
		value = name + "=…"
	}
	flag := "--" + t.spec.name
	switch {
	case !t.spec.bare():
		return flag + " " + value
	case t.spec.placeholder == "" || value == "true":
		return flag
	}
	return flag + "=" + value
}

// policyFlags are the flags that become a policy document.
var policyFlags = [...]flagSpec{
	{"preset", "NAME", groupPolicy, "start from these presets, separated by commas; cloche policy presets lists them", "", applyPreset, policy.Presets},
	{"ro", "PATH", groupPaths, "allow reading PATH; ?PATH may be missing", "paths.read", nil, nil},
	{"rw", "PATH", groupPaths, "allow reading and writing PATH", "paths.write", nil, nil},
	{"hide", "PATH", groupPaths, "hide PATH; it may be a pattern such as '**/*.pem'", "paths.hide", nil, nil},
	{"protect", "PATH", groupPaths, "do not allow creating, changing or removing PATH; it may be a pattern", "paths.protect", nil, nil},
	{"bind", "SPEC", groupPaths, "show a host path inside: PATH, PATH:ro, HOST:INSIDE or HOST:INSIDE:ro", "binds", nil, nil},
	{"persist", "PATH", groupPaths, "give the command its own PATH, kept from run to run and separate from the real one", "persist", nil, nil},
	{"remap", "PATH", groupPaths, "show the workspace at PATH inside", "remap", nil, nil},
	{"tmp", "KIND", groupPaths, "which /tmp the command sees: private (its own) or shared (the host's)", "tmp", nil, names("private", "shared")},
	{"review", "[=NAME]", groupPaths, "keep what the command writes aside, copy-on-write, until you apply or discard it with cloche review", "review", nil, nil},
	{"net", "MODE[:LINK]", groupNetwork, "none, loopback, user (what --allow lists) or host (everything); for user, LINK is tun, veth or proxy", "", applyNet,
		names("none", "loopback", "user", "host", "user:tun", "user:veth", "user:proxy")},
	{"allow", "HOST[:PORT]", groupNetwork, "allow connections to HOST: a name, '*.name', '*' (every public host), an address, a CIDR, udp://HOST:PORT, http://HOST/PATH or 'GET https://HOST/PATH'; implies --net user", "network.allow", nil, nil},
	{"deny", "HOST[:PORT]", groupNetwork, "deny connections to HOST, whatever is allowed", "network.deny", nil, nil},
	{"publish", "PORT[:INSIDE]", groupNetwork, "open a port of the command on the host: [ADDR:]PORT[:INSIDE][/udp]; ADDR defaults to 127.0.0.1, INSIDE to PORT", "network.publish", nil, nil},
	{"forward", "PORT[:INSIDE]", groupNetwork, "let the command connect to a port of the host's loopback: PORT[:INSIDE][/udp]; INSIDE defaults to PORT", "network.forward", nil, nil},
	{"socket", "PATH", groupNetwork, "allow connecting to the unix socket PATH, or to the abstract socket @NAME; \"datagrams\" allows unix datagram sockets", "sockets", nil, nil},
	{"bus", "[=NAME,…]", groupNetwork, "allow calls to these names on the session bus; without a name, show an empty bus", "", applyBus, nil},
	{"ssh-agent", "", groupNetwork, "allow using the ssh-agent of SSH_AUTH_SOCK", "", agentFlag(policy.SSHAgent), nil},
	{"gpg-agent", "", groupNetwork, "allow using the gpg-agent, through its restricted socket", "", agentFlag(policy.GPGAgent), nil},
	{"secret", "NAME@HOST", groupEnv, "let the command use the secret NAME in requests to HOST and not read it: NAME@HOST[,HOST][=SOURCE], or a preset such as gh; implies --net user", "secrets", nil, policy.SecretPresets},
	{"env", "NAME[=VALUE]", groupEnv, "pass the variable NAME, or set it to VALUE", "", applyEnv, nil},
	{"env-policy", "POLICY", groupEnv, "which variables pass: scrubbed (the usual ones), inherit (all but secrets) or list (only --env)", "env.policy", nil, names("scrubbed", "inherit", "list")},
	{"timeout", "TIME", groupLimits, "stop the command after TIME, such as 90s or 10m", "limits.time", nil, nil},
	{"max-output", "SIZE", groupLimits, "stop the command after SIZE of output, such as 10MiB", "limits.output", nil, nil},
	{"memory", "SIZE", groupLimits, "limit the memory of the command and everything that it starts", "limits.memory", nil, nil},
	{"pids", "N", groupLimits, "limit the number of processes and threads", "limits.processes", nil, nil},
	{"open-files", "N", groupLimits, "limit the open files of each process", "limits.open_files", nil, nil},
	{"file-size", "SIZE", groupLimits, "limit the size of each file", "limits.file_size", nil, nil},
	{"backend", "NAME", groupBackend, "what enforces the policy: auto, required, native, bwrap, landlock, seatbelt or none", "backend.name", nil, names("auto", "required", "native", "bwrap", "landlock", "seatbelt", "none")},
	{"fallback", "KIND", groupBackend, "if no backend works: refuse, or warn and run without a sandbox", "fallback", nil, names("refuse", "warn")},
	{"denials", "WHICH", groupPolicy, "which denials to record: usual, thorough (every read; slower) or changes (no reads)", "denials", nil, names("usual", "thorough", "changes")},
	{"best-effort", "", groupBackend, "run even if rules cannot be enforced, and report each", "", applyBestEffort, nil},
}

func names(n ...string) func() []string { return func() []string { return n } }

// A flagValue is the value of a flag, and what the help and the shells' completion need to
// know about it.
type flagValue struct {
	group       string
	placeholder string // one word for the value; empty for a flag without one
	set         func(string) error
	values      func() []string // what can be written; nil if files can be
}

// String returns nothing: the usage text has the default.
func (v *flagValue) String() string { return "" }

// Set sets the value.
func (v *flagValue) Set(value string) error { return v.set(value) }

// Type is the word that stands for the value in help texts.
func (v *flagValue) Type() string { return cmp.Or(v.placeholder, "bool") }

func textFlag(f *pflag.FlagSet, to *string, name, placeholder, group, usage string) *flagValue {
	v := &flagValue{group: group, placeholder: placeholder, set: func(value string) error {
		*to = value
		return nil
	}}
	f.VarP(v, name, "", usage)
	return v
}

func stringsFlag(f *pflag.FlagSet, to *[]string, name, placeholder, group, usage string) {
	f.VarP(&flagValue{group: group, placeholder: placeholder, set: func(value string) error {
		*to = append(*to, value)
		return nil
	}}, name, "", usage)
}

func boolFlag(f *pflag.FlagSet, to *bool, name, group, usage string) {
	v := &flagValue{group: group, set: func(value string) (err error) {
		*to, err = strconv.ParseBool(value)
		return err
	}}
	f.VarPF(v, name, "", usage).NoOptDefVal = "true"
}

func numberFlag(f *pflag.FlagSet, to *int, name, short, placeholder, group, usage string) {
	f.VarP(&flagValue{group: group, placeholder: placeholder, set: func(value string) (err error) {
		*to, err = strconv.Atoi(value)
		return err
	}}, name, short, usage)
}

func timeFlag(f *pflag.FlagSet, to *time.Duration, name, group, usage string) {
	f.VarP(&flagValue{group: group, placeholder: "TIME", set: func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return errors.New("is not a time; write one such as 30s or 10m")
		}
		*to = d
		return nil
	}}, name, "", usage)
}

// jsonFlag defines --json, by which a command prints its result as JSON.
func (a *app) jsonFlag(c *cobra.Command, usage string) {
	boolFlag(c.Flags(), &a.json, "json", groupOutput, usage)
}
