package importer

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// srtNetwork is the section network of sandbox-runtime. Claude Code has the same.
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

// noEqual returns why a known key has no equivalent.
func noEqual(key string) string {
	reasons := map[string]string{
		"httpProxyPort":                "there is no proxy to choose; hosts are judged for every program",
		"socksProxyPort":               "there is no proxy to choose; hosts are judged for every program",
		"mitmProxy":                    "what is inside of TLS is not looked into",
		"tlsTerminate":                 "what is inside of TLS is not looked into",
		"filterRequest":                "requests are judged by rules: network.allow with methods and paths",
		"parentProxy":                  "connections are made directly",
		"allowMachLookup":              "services of macOS are not granted by name",
		"ignoreViolations":             "every refusal is recorded; cloche log --json shows them",
		"enableWeakerNestedSandbox":    "where the machine cannot enforce a rule, --best-effort runs and says which",
		"enableWeakerNetworkIsolation": "where the machine cannot enforce a rule, --best-effort runs and says which",
		"ripgrep":                      "no tree is searched by another program",
		"mandatoryDenySearchDepth":     "names are held at any depth without a search",
		"allowPty":                     "a terminal is there whenever the caller has one",
		"allowAppleEvents":             "events of macOS are not granted",
		"seccomp":                      "the filter is built in",
		"git":                          "git's own settings decide",
		"windows":                      "it is about Windows",
		"credentials":                  "secrets are hidden whole, never masked in part",
		"allowManagedDomainsOnly":      "a user's file and the command line are above a project's",
		"allowManagedReadPathsOnly":    "a user's file and the command line are above a project's",
		"strictAllowlist":              "hosts that are not allowed are always refused",
	}
	return cmp.Or(reasons[key], "it is not known")
}

// sandboxRuntime reads a file of sandbox-runtime.
func (b *builder) sandboxRuntime(data []byte) error {
	keys, err := readObject(data, &struct{}{})
	if err != nil {
		return err
	}
	// In sandbox-runtime only listed paths are writable. Not even the workspace is, unless
	// it is listed.
	b.presets, b.unlimited = []string{"readonly", "sinks"}, true
	b.env = entry{"inherit", "all variables pass there; what looks like a secret does not pass here"}
	if err := b.srtFilesystem("filesystem", keys["filesystem"]); err != nil {
		return err
	}
	if err := b.srtNetwork("network", keys["network"]); err != nil {
		return err
	}
	b.others("", keys, []string{"network", "filesystem", "credentials"})
	return b.srtCredentials(keys["credentials"])
}

func (b *builder) srtFilesystem(name string, data json.RawMessage) error {
	var f srtFilesystem
	keys, err := readObject(data, &f)
	if err != nil {
		return err
	}
	for _, p := range f.AllowRead {
		b.take("paths.read", placed(p), name+".allowRead")
	}
	for _, p := range f.DenyRead {
		if at := placed(p); !b.listed("paths.read", at.path) { // in sandbox-runtime, allowRead wins
			b.take("paths.hide", at, name+".denyRead")
		}
	}
	for _, p := range f.AllowWrite {
		if p == "/tmp" || p == "/private/tmp" || p == "/tmp/**" {
			b.remarks = append(b.remarks, name+".allowWrite "+p+": /tmp is the command's own, and writable.")
			continue
		}
		b.take("paths.write", placed(p), name+".allowWrite")
	}
	for _, p := range f.DenyWrite {
		b.take("paths.protect", placed(p), name+".denyWrite")
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
	var n srtNetwork
	keys, err := readObject(data, &n)
	if err != nil {
		return err
	}
	for _, h := range n.AllowedDomains {
		b.host("network.allow", h, name+".allowedDomains")
	}
	for _, h := range n.DeniedDomains {
		b.host("network.deny", h, name+".deniedDomains")
	}
	for _, h := range n.DeniedResolvedAddresses {
		b.host("network.deny", h, name+".deniedResolvedAddresses")
	}
	for _, p := range n.AllowUnixSockets {
		at, setting := placed(p), name+".allowUnixSockets "+p
		if at.wrong != "" || at.glob {
			b.no(setting, "a socket is granted by its path alone")
			continue
		}
		if why := wrong("sockets", at.path); why != "" {
			b.no(setting, why)
			continue
		}
		b.add("sockets", "?"+at.path, name+".allowUnixSockets")
	}
	if n.AllowAllUnixSockets {
		b.no(name+".allowAllUnixSockets", "each socket is granted by name: sockets, or --socket PATH")
	}
	if n.AllowLocalBinding && len(b.lists["network.allow"]) == 0 {
		b.mode = entry{"loopback", name + ".allowLocalBinding"}
	}
	b.others(name, keys, []string{"allowedDomains", "deniedDomains", "deniedDomainReasons", "deniedResolvedAddresses", "allowUnixSockets",
		"allowAllUnixSockets", "allowLocalBinding", "strictAllowlist"})
	return nil
}

func (b *builder) srtCredentials(data json.RawMessage) error {
	var c struct {
		Files   []struct{ Path, Mode string } `json:"files"`
		EnvVars []struct{ Name, Mode string } `json:"envVars"`
	}
	keys, err := readObject(data, &c)
	if err != nil {
		return err
	}
	for _, f := range c.Files {
		b.take("paths.hide", placed(f.Path), "credentials.files")
		if f.Mode != "deny" {
			b.no("credentials.files "+f.Path, noEqual("credentials")+"; it is hidden")
		}
	}
	for _, v := range c.EnvVars {
		// If one variable must not pass, the policy cannot let all pass.
		b.env = entry{"scrubbed", "credentials.envVars: only variables that hold no secret pass"}
		if v.Mode != "deny" {
			b.no("credentials.envVars "+v.Name, noEqual("credentials")+"; it does not pass")
		}
	}
	b.others("credentials", keys, []string{"files", "envVars"})
	return nil
}

// others reports the keys of an object that the importer does not read.
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
