package importer

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/cloche-dev/cloche/internal/policyfile"
	"github.com/cloche-dev/cloche/policy"
)

// srtNetwork is the network part of sandbox-runtime, which Claude Code shares.
type srtNetwork struct {
	AllowedDomains          []string `json:"allowedDomains"`
	DeniedDomains           []string `json:"deniedDomains"`
	DeniedResolvedAddresses []string `json:"deniedResolvedAddresses"`
	AllowUnixSockets        []string `json:"allowUnixSockets"`
	AllowAllUnixSockets     bool     `json:"allowAllUnixSockets"`
	AllowLocalBinding       bool     `json:"allowLocalBinding"`
}

type srtFilesystem struct {
	Disabled       bool     `json:"disabled"`
	DenyRead       []string `json:"denyRead"`
	AllowRead      []string `json:"allowRead"`
	AllowWrite     []string `json:"allowWrite"`
	DenyWrite      []string `json:"denyWrite"`
	AllowGitConfig bool     `json:"allowGitConfig"`
}

// noEqual is the reason for a key that is known and has no equal.
func noEqual(key string) string {
	switch key {
	case "httpProxyPort", "socksProxyPort":
		return "there is no proxy to choose; hosts are judged for every program"
	case "mitmProxy", "tlsTerminate":
		return "what is inside of TLS is not looked into"
	case "filterRequest":
		return "requests are judged by rules: network.allow with methods and paths, for plain HTTP"
	case "parentProxy":
		return "connections are made directly"
	case "allowMachLookup":
		return "services of macOS are not granted by name"
	case "ignoreViolations":
		return "every refusal is recorded; cloche log --json shows them"
	case "enableWeakerNestedSandbox", "enableWeakerNetworkIsolation":
		return "where the machine cannot enforce a rule, --best-effort runs and says which"
	case "ripgrep":
		return "no tree is searched by another program"
	case "mandatoryDenySearchDepth":
		return "names are held at any depth without a search"
	case "allowPty":
		return "a terminal is there whenever the caller has one"
	case "allowAppleEvents":
		return "events of macOS are not granted"
	case "seccomp":
		return "the filter is built in"
	case "git":
		return "git's own settings decide"
	case "windows":
		return "it is about Windows"
	case "credentials":
		return "secrets are hidden whole, never masked in part"
	case "allowManagedDomainsOnly", "allowManagedReadPathsOnly":
		return "a user's file and the command line are above a project's"
	case "strictAllowlist":
		return "hosts that are not allowed are always refused"
	}
	return "it is not known"
}

// sandboxRuntime reads a file of sandbox-runtime.
func (b *builder) sandboxRuntime(data []byte) error {
	var s struct {
		Network     json.RawMessage `json:"network"`
		Filesystem  json.RawMessage `json:"filesystem"`
		Credentials json.RawMessage `json:"credentials"`
	}
	var keys map[string]json.RawMessage
	if err := readJSON(data, &keys); err != nil {
		return err
	}
	if err := readJSON(data, &s); err != nil {
		return err
	}
	// Nothing can be written there that is not listed, not even the workspace.
	b.presets, b.unlimited = []string{"readonly", "sinks"}, true
	b.envPolicy, b.envFrom = "inherit", "all variables pass there; what looks like a secret does not pass here"
	if err := b.srtFilesystem("filesystem", s.Filesystem); err != nil {
		return err
	}
	if err := b.srtNetwork("network", s.Network); err != nil {
		return err
	}
	b.others("", keys, []string{"network", "filesystem", "credentials"})
	return b.srtCredentials(s.Credentials)
}

func (b *builder) srtFilesystem(name string, data json.RawMessage) error {
	if data == nil {
		return nil
	}
	var f srtFilesystem
	var keys map[string]json.RawMessage
	if err := readJSON(data, &f); err != nil {
		return err
	}
	if err := readJSON(data, &keys); err != nil {
		return err
	}
	for _, p := range f.AllowRead {
		b.take(&b.read, placed(p), name+".allowRead", false)
	}
	for _, p := range f.DenyRead {
		if at := placed(p); !listed(b.read, at.path) { // there, allowRead wins
			b.take(&b.hide, at, name+".denyRead", true)
		}
	}
	for _, p := range f.AllowWrite {
		if p == "/tmp" || p == "/private/tmp" || p == "/tmp/**" {
			b.remarks = append(b.remarks, name+".allowWrite "+p+": /tmp is the command's own, and writable.")
			continue
		}
		b.take(&b.write, placed(p), name+".allowWrite", false)
	}
	for _, p := range f.DenyWrite {
		b.take(&b.protect, placed(p), name+".denyWrite", true)
	}
	if f.Disabled {
		b.no(name+".disabled", "files are always judged; --preset open opens the most")
	}
	if f.AllowGitConfig {
		b.no(name+".allowGitConfig", "git's settings are judged by what they would run; harmless ones can be written")
	}
	b.others(name, keys, []string{"disabled", "denyRead", "allowRead", "allowWrite", "denyWrite", "allowGitConfig"})
	return nil
}

func (b *builder) srtNetwork(name string, data json.RawMessage) error {
	if data == nil {
		return nil
	}
	var n srtNetwork
	var keys map[string]json.RawMessage
	if err := readJSON(data, &n); err != nil {
		return err
	}
	if err := readJSON(data, &keys); err != nil {
		return err
	}
	for _, h := range n.AllowedDomains {
		b.host(&b.allow, h, name+".allowedDomains")
	}
	for _, h := range n.DeniedDomains {
		b.host(&b.deny, h, name+".deniedDomains")
	}
	for _, h := range n.DeniedResolvedAddresses {
		b.host(&b.deny, h, name+".deniedResolvedAddresses")
	}
	for _, p := range n.AllowUnixSockets {
		at := placed(p)
		if at.wrong != "" || at.glob {
			b.no(name+".allowUnixSockets "+p, "a socket is granted by its path alone")
			continue
		}
		if _, err := policy.Parse("socket", []byte("sockets: ["+policyfile.Quote(at.path)+"]")); err != nil {
			b.no(name+".allowUnixSockets "+p, brief(err))
			continue
		}
		add(&b.sockets, "?"+at.path, name+".allowUnixSockets")
	}
	if n.AllowAllUnixSockets {
		b.no(name+".allowAllUnixSockets", "each socket is granted by name: sockets, or --socket PATH")
	}
	if n.AllowLocalBinding && len(b.allow) == 0 {
		b.mode, b.modeFrom = "loopback", name+".allowLocalBinding"
	}
	b.others(name, keys, []string{"allowedDomains", "deniedDomains", "deniedDomainReasons", "deniedResolvedAddresses", "allowUnixSockets",
		"allowAllUnixSockets", "allowLocalBinding", "strictAllowlist"})
	return nil
}

func (b *builder) srtCredentials(data json.RawMessage) error {
	if data == nil {
		return nil
	}
	var c struct {
		Files   []struct{ Path, Mode string } `json:"files"`
		EnvVars []struct{ Name, Mode string } `json:"envVars"`
	}
	var keys map[string]json.RawMessage
	if err := readJSON(data, &c); err != nil {
		return err
	}
	if err := readJSON(data, &keys); err != nil {
		return err
	}
	for _, f := range c.Files {
		b.take(&b.hide, placed(f.Path), "credentials.files", true)
		if f.Mode != "deny" {
			b.no("credentials.files "+f.Path, noEqual("credentials")+"; it is hidden")
		}
	}
	for _, v := range c.EnvVars {
		// One that may not pass rules out that all others do.
		b.envPolicy, b.envFrom = "scrubbed", "credentials.envVars: only variables that hold no secret pass"
		if v.Mode != "deny" {
			b.no("credentials.envVars "+v.Name, noEqual("credentials")+"; it does not pass")
		}
	}
	b.others("credentials", keys, []string{"files", "envVars"})
	return nil
}

// others reports the keys of an object that were not read.
func (b *builder) others(name string, keys map[string]json.RawMessage, read []string) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if slices.Contains(read, key) || key == "$schema" || string(keys[key]) == "false" || string(keys[key]) == "null" {
			continue
		}
		b.no(join(name, key), noEqual(key))
	}
}

func join(name, key string) string {
	if name == "" {
		return key
	}
	return name + "." + key
}
