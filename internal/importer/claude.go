package importer

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

type claudeSettings struct {
	Permissions struct {
		Allow                 []string `json:"allow"`
		Deny                  []string `json:"deny"`
		Ask                   []string `json:"ask"`
		AdditionalDirectories []string `json:"additionalDirectories"`
		DefaultMode           string   `json:"defaultMode"`
	} `json:"permissions"`
	Sandbox map[string]json.RawMessage `json:"sandbox"`
	Env     map[string]string          `json:"env"`
}

// claudeCode reads a settings.json of Claude Code: its rules for tools, which become
// rules for everything that a command does, and its sandbox.
func (b *builder) claudeCode(data []byte) error {
	var s claudeSettings
	if _, err := readObject(data, &s); err != nil {
		return err
	}
	b.presets = []string{"workspace"}
	for _, r := range s.Permissions.Deny {
		b.claudeRule("deny", r)
	}
	for _, r := range s.Permissions.Ask {
		b.claudeRule("ask", r)
	}
	for _, r := range s.Permissions.Allow {
		b.claudeRule("allow", r)
	}
	for _, dir := range s.Permissions.AdditionalDirectories {
		b.take("paths.write", placed(dir), "permissions.additionalDirectories")
	}
	switch mode := s.Permissions.DefaultMode; mode {
	case "", "default":
	case "plan":
		b.presets = []string{"readonly", "sinks"}
	default:
		b.no("permissions.defaultMode "+mode, "whether a person is asked is not a part of a policy; see cloche approve")
	}
	b.variables("env", s.Env)
	return b.claudeSandbox(s.Sandbox)
}

// claudeRule reads one rule, such as Read(~/.zshrc).
func (b *builder) claudeRule(list, rule string) {
	setting := "permissions." + list + " " + rule
	tool, argument, has := strings.Cut(strings.TrimSuffix(rule, ")"), "(")
	switch {
	case (tool == "Read" || tool == "Edit" || tool == "Write" || tool == "NotebookEdit" || tool == "MultiEdit") && has:
		b.claudePath(list, tool == "Read", argument, setting)
	case tool == "WebFetch" && strings.HasPrefix(argument, "domain:"):
		b.claudeHost(list, strings.TrimPrefix(argument, "domain:"), setting)
	case tool == "Bash":
		b.no(setting, "commands are judged by what they do, not by how they are spelled")
	case strings.HasPrefix(tool, "mcp__"):
		b.no(setting, "tools of servers are the agent's own; run the server under cloche")
	case has:
		b.no(setting, "there is no such rule for what commands do")
	case tool == "WebFetch" && list == "allow":
		b.no(setting, "every host would be open; name them: network.allow")
	default:
		b.no(setting, "whole tools of the agent are not a part of a policy")
	}
}

func (b *builder) claudePath(list string, read bool, argument, setting string) {
	at := claudePlace(argument)
	switch {
	case list == "allow" && read:
		b.take("paths.read", at, setting)
	case list == "allow":
		b.take("paths.write", at, setting)
	case read:
		b.take("paths.hide", at, setting)
	default:
		b.take("paths.protect", at, setting)
	}
	if list == "ask" && at.wrong == "" {
		b.no(setting, "nobody is asked: it is refused, until it is granted with cloche approve")
	}
}

// claudePlace reads the path of a rule, which follows gitignore: //x is absolute, /x
// begins at the project, and a name without a slash matches at any depth.
func claudePlace(p string) place {
	switch {
	case strings.HasPrefix(p, "//"):
		return placed(p[1:])
	case strings.HasPrefix(p, "/"):
		return placed("." + p)
	case !strings.Contains(p, "/") && p != "." && p != "~" && p != "**" && p != "*" && p != "":
		return placed("**/" + p)
	case p == "*":
		return placed("**")
	}
	return placed(p)
}

func (b *builder) claudeHost(list, host, setting string) {
	switch list {
	case "allow":
		if !strings.Contains(host, ":") {
			host += ":443" // the tool uses only HTTPS
		}
		b.host("network.allow", host, setting)
	case "deny":
		b.host("network.deny", host, setting)
	default:
		b.no(setting, "nobody is asked: it is refused, until it is granted with cloche approve")
	}
}

func (b *builder) claudeSandbox(s map[string]json.RawMessage) error {
	if err := b.srtFilesystem("sandbox.filesystem", s["filesystem"]); err != nil {
		return err
	}
	if err := b.srtNetwork("sandbox.network", s["network"]); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(s)) {
		switch value := string(s[key]); {
		case key == "filesystem" || key == "network" || value == "false" || value == "null" || value == "[]":
		case key == "enabled" || key == "failIfUnavailable":
			// cloche has no such exceptions: a policy is enforced, or the command does not run.
		case key == "excludedCommands":
			b.no("sandbox.excludedCommands "+value, "no command runs outside; give it what it needs: cloche learn -- COMMAND")
		case key == "allowUnsandboxedCommands":
			b.no("sandbox."+key, "no command runs outside")
		case key == "autoAllowBashIfSandboxed":
			b.no("sandbox."+key, "whether a person is asked is not a part of a policy; see cloche approve")
		default:
			b.others("sandbox", map[string]json.RawMessage{key: s[key]}, nil)
		}
	}
	return nil
}

// variables copies variables with their values, except those that look like secrets:
// people share policy files.
func (b *builder) variables(name string, set map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		switch {
		case !isVariable(key):
			b.no(join(name, key), "it is not the name of a variable")
		case looksSecret(key):
			b.no(join(name, key), "it looks like a secret, which a policy should not hold; hand it over with --env")
		default:
			b.set = append(b.set, entry{key + "=" + set[key], name})
		}
	}
}

func isVariable(s string) bool {
	return s != "" && !(s[0] >= '0' && s[0] <= '9') && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

func looksSecret(name string) bool {
	upper := strings.ToUpper(name)
	return slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH", "_PAT"}, func(part string) bool {
		return strings.Contains(upper, part)
	})
}
