package importer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

type codexConfig struct {
	SandboxMode    string `toml:"sandbox_mode"`
	WorkspaceWrite struct {
		WritableRoots []string `toml:"writable_roots"`
		NetworkAccess bool     `toml:"network_access"`
	} `toml:"sandbox_workspace_write"`
	Environment struct {
		Inherit        string            `toml:"inherit"`
		IgnoreExcludes bool              `toml:"ignore_default_excludes"`
		Exclude        []string          `toml:"exclude"`
		IncludeOnly    []string          `toml:"include_only"`
		Set            map[string]string `toml:"set"`
		UseProfile     bool              `toml:"experimental_use_profile"`
	} `toml:"shell_environment_policy"`
}

// codex reads a config.toml of Codex.
func (b *builder) codex(data []byte) error {
	var c codexConfig
	var keys map[string]any
	for _, to := range []any{&keys, &c} {
		if err := readTOML(data, to); err != nil {
			return err
		}
	}
	b.codexMode(&c)
	b.codexEnvironment(&c)
	for _, key := range []struct{ name, reason string }{
		{"approval_policy", "whether a person is asked is not a part of a policy; see cloche approve"},
		{"default_permissions", "profiles of permissions are not read; import what they say by hand"},
		{"permissions", "profiles of permissions are not read; import what they say by hand"},
		{"sandbox_permissions", "this older form is not read; write sandbox_mode"},
	} {
		if _, ok := keys[key.name]; ok {
			b.no(key.name, key.reason)
		}
	}
	b.unknownKeys(keys, "sandbox_workspace_write", "writable_roots", "network_access", "exclude_tmpdir_env_var", "exclude_slash_tmp")
	b.unknownKeys(keys, "shell_environment_policy", "inherit", "ignore_default_excludes", "exclude", "include_only", "set", "experimental_use_profile")
	return nil
}

// readTOML reads TOML into a value. An error names the line.
func readTOML(data []byte, to any) error {
	err := toml.Unmarshal(data, to)
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := wrong.Position()
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

// unknownKeys reports the keys of a table that the importer does not read.
func (b *builder) unknownKeys(keys map[string]any, table string, read ...string) {
	section, _ := keys[table].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(section)) {
		if !slices.Contains(read, key) {
			b.no(table+"."+key, "it is not known")
		}
	}
}

func (b *builder) codexMode(c *codexConfig) {
	switch c.SandboxMode {
	case "read-only":
		b.presets = []string{"readonly", "sinks"}
		return
	case "danger-full-access":
		b.presets = []string{"open"}
		b.no("sandbox_mode danger-full-access", "there is always a sandbox; the preset open gives the most: the workspace, caches and the network")
		return
	case "", "workspace-write":
		b.presets = []string{"workspace"}
	default:
		b.presets = []string{"readonly", "sinks"}
		b.no("sandbox_mode "+c.SandboxMode, "it is not known; nothing can be written")
		return
	}
	const section = "sandbox_workspace_write."
	for _, root := range c.WorkspaceWrite.WritableRoots {
		b.take("paths.write", placed(root), section+"writable_roots")
	}
	if c.WorkspaceWrite.NetworkAccess {
		b.host("network.allow", "*", section+"network_access")
		b.no(section+"network_access", "every public host is open; the local network and services of this machine are opened one by one")
	}
	b.remarks = append(b.remarks, "/tmp is the command's own, whatever exclude_slash_tmp and exclude_tmpdir_env_var say.")
}

func (b *builder) codexEnvironment(c *codexConfig) {
	const section = "shell_environment_policy."
	e := &c.Environment
	switch e.Inherit {
	case "":
	case "all":
		b.env = entry{"inherit", section + "inherit; what looks like a secret does not pass"}
	case "core":
		b.env = entry{"scrubbed", section + "inherit"}
	case "none":
		b.env = entry{"list", section + "inherit"}
	default:
		b.no(section+"inherit "+e.Inherit, "it is not known; only variables that hold no secret pass")
	}
	if e.IgnoreExcludes {
		b.no(section+"ignore_default_excludes", "variables that look like secrets never pass by themselves; hand one over with --env")
	}
	if len(e.Exclude) > 0 && b.env.value != "list" {
		// It is not known which variables these are, so only harmless ones pass.
		b.env = entry{"scrubbed", section + "exclude: only variables that hold no secret pass"}
		b.no(section+"exclude", "single variables cannot be taken out; only well-known harmless ones pass")
	}
	if len(e.IncludeOnly) > 0 {
		b.env = entry{"list", section + "include_only"}
	}
	for _, pattern := range e.IncludeOnly {
		if name := strings.TrimSuffix(pattern, "*"); isVariable(name) {
			b.add("env.pass", pattern, section+"include_only")
		} else {
			b.no(section+"include_only "+pattern, "a name, or the beginning of one with * behind it, can be passed")
		}
	}
	if e.UseProfile {
		b.no(section+"experimental_use_profile", "no start-up file of a shell is run")
	}
	b.variables(section+"set", e.Set)
}
