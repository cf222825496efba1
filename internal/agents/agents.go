// Package agents knows the coding agents that cloche works with: how each is
// started whole in a sandbox, how its shell commands are put under cloche one by
// one, and how to tell whether that is in force.
//
// It reads and edits the settings of other programs. What it does not understand
// it leaves untouched, and what a hook does not understand it blocks.
package agents

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An Agent is a coding agent.
type Agent struct {
	// Name is its name on cloche's command line, and that of its preset.
	Name string
	// Title is its name for people.
	Title string
	// Programs are the possible names of its program. The first one that is in PATH is used.
	Programs []string
	// Args go before the user's own, and Env is set, so that the agent does not start
	// a sandbox of its own inside. Inner names what is switched off; empty if nothing is.
	Args, Env []string
	Inner     string
	// Instead says why single commands cannot be put under cloche by a settings file,
	// and what to do. It is empty where install works.
	Instead string
	// Note is what the user has to know or do after install. UserNote is for the scope User alone.
	Note, UserNote string

	parts func(p *Places) []Part
	reply replier
	// overrides are settings of a project that undo what is installed for the user. managed: they
	// do not undo what is installed for the system.
	overrides []override
	managed   bool
	// beside are settings in the folder of a file that was installed, which are above that file.
	beside []override
}

// A Scope is whose settings are edited.
type Scope string

// The scopes.
const (
	User    Scope = "user"
	Project Scope = "project"
	System  Scope = "system"
)

// Places are where settings are.
type Places struct {
	Scope   Scope
	Home    string
	Project string
	// Dir is where the agent is started: the project, or a folder in it.
	Dir string
	// Cloche is the program that settings call.
	Cloche string
	Getenv func(string) string
}

// A Part is one file of what is installed.
type Part struct {
	File string
	// Text is the whole file, if it is cloche's own. Program: it is executable.
	Text    string
	Program bool
	// Edits are made in a file of JSON otherwise. Comments: the agent allows comments in it.
	Edits    []Edit
	Comments bool
}

// pick returns the file of a scope. An empty one means that there is none.
func (p *Places) pick(user, project, system string) string {
	switch p.Scope {
	case Project:
		if project != "" {
			return filepath.Join(p.Project, project)
		}
	case System:
		return system
	case User:
		return user
	}
	return ""
}

// folder is the folder that a variable names, or else one of the home.
func (p *Places) folder(variable, below string) string {
	if dir := p.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(p.Home, below)
}

// hook is the command line of the hook of an agent.
func (p *Places) hook(name string) string { return Quote(p.Cloche) + " hook " + name }

// ClaudeOption tells cloche that Claude Code starts it as its prefix.
const ClaudeOption = "--agent=claude"

type object = map[string]any

// All returns the agents, in the order of lists.
func All() []*Agent {
	noHooks := "; run the whole agent inside: cloche agent run "
	shell := " reads no file that names its shell; run the whole agent inside, or start it with SHELL set to the path of cloche"
	return []*Agent{
		{
			Name: "claude", Title: "Claude Code", Programs: []string{"claude"},
			Args: []string{"--settings", `{"sandbox":{"enabled":false}}`}, Inner: "sandbox",
			UserNote: "a project whose settings both empty the prefix and disable hooks undoes this; --project and --system hold against that",
			parts:    claudeParts, reply: claudeReply, managed: true,
			overrides: []override{
				{".claude/settings.json", []string{"env", claudePrefix}, "", false}, {".claude/settings.local.json", []string{"env", claudePrefix}, "", false},
				{".claude/settings.json", []string{"disableAllHooks"}, "false", false}, {".claude/settings.local.json", []string{"disableAllHooks"}, "false", false},
			},
		},
		{
			Name: "codex", Title: "Codex", Programs: []string{"codex"},
			Args: []string{"-c", `sandbox_mode="danger-full-access"`}, Inner: "sandbox",
			Note:  "start codex, type /hooks and trust the hook: until then Codex skips it without a word",
			parts: codexParts, reply: codexReply,
			overrides: []override{{file: ".codex/config.toml", harmless: "hooks"}},
		},
		{
			Name: "gemini", Title: "Gemini CLI", Programs: []string{"gemini"},
			Env: []string{"GEMINI_SANDBOX=false"}, Inner: "sandbox",
			Note:  "Gemini CLI judges the rewritten command: its own rules for single commands do not match any more",
			parts: geminiParts, reply: geminiReply,
			overrides: []override{
				{".gemini/settings.json", []string{"hooksConfig", "enabled"}, "true", true}, {".gemini/settings.json", []string{"hooksConfig", "disabled"}, "[]", true},
				{".gemini/settings.json", []string{"hooks", "BeforeTool"}, "[]", true},
			},
		},
		{
			Name: "opencode", Title: "opencode", Programs: []string{"opencode"},
			UserNote: "a project whose opencode.json names another shell undoes this; --system holds against that",
			parts:    opencodeParts, managed: true,
			beside: []override{{"opencode.jsonc", []string{"shell"}, "", true}},
			overrides: []override{
				{"opencode.json", []string{"shell"}, "", true}, {"opencode.jsonc", []string{"shell"}, "", true},
				{".opencode/opencode.json", []string{"shell"}, "", true}, {".opencode/opencode.jsonc", []string{"shell"}, "", true},
			},
		},
		{Name: "copilot", Title: "Copilot CLI", Programs: []string{"copilot"}, parts: copilotParts, reply: copilotReply, overrides: copilotOverrides()},
		{Name: "cline", Title: "Cline", Programs: []string{"cline"}, parts: clineParts, reply: clineReply, overrides: []override{{file: ".clinerules/hooks/PreToolUse"}}},
		{
			Name: "qwen", Title: "Qwen Code", Programs: []string{"qwen"},
			Env: []string{"GEMINI_SANDBOX=false", "QWEN_SANDBOX=false"}, Inner: "sandbox",
			Instead: "a hook of Qwen Code cannot change a command" + noHooks + "qwen",
		},
		{Name: "continue", Title: "Continue", Programs: []string{"cn"}, Instead: "Continue" + shell},
		{Name: "aider", Title: "aider", Programs: []string{"aider"}, Instead: "aider" + shell},
		{Name: "crush", Title: "Crush", Programs: []string{"crush"}, Instead: "the hooks of Crush do not hold for its sub-agents" + noHooks + "crush"},
		{Name: "amp", Title: "Amp", Programs: []string{"amp"}, Instead: "Amp has no hook that changes a command" + noHooks + "amp"},
		{
			Name: "cursor", Title: "Cursor CLI", Programs: []string{"cursor-agent"}, Args: []string{"--sandbox", "disabled"}, Inner: "sandbox",
			parts: cursorParts, reply: cursorReply,
		},
	}
}

// Names returns the names of the agents.
func Names() []string {
	var names []string
	for _, a := range All() {
		names = append(names, a.Name)
	}
	return names
}

// Find returns the agent of a name.
func Find(name string) (*Agent, error) {
	all := All()
	if i := slices.IndexFunc(all, func(a *Agent) bool { return a.Name == name }); i >= 0 {
		return all[i], nil
	}
	return nil, fmt.Errorf("there is no agent %q; known are %s", name, strings.Join(Names(), ", "))
}

// Parts returns what is installed for a scope.
func (a *Agent) Parts(p *Places) ([]Part, error) {
	if a.Instead != "" {
		return nil, fmt.Errorf("%s: %s", a.Name, a.Instead)
	}
	parts := a.parts(p)
	for _, part := range parts {
		if part.File == "" {
			return nil, fmt.Errorf("%s: cloche knows no %s settings of %s; leave --%s out", a.Name, p.Scope, a.Title, p.Scope)
		}
	}
	return parts, nil
}

const claudePrefix = "CLAUDE_CODE_SHELL_PREFIX"

// claudeParts set the prefix, by which Claude Code starts each command and which leaves
// its own rules alone, and a hook that blocks commands where a project has changed the prefix. The prefix
// has to be one program: Claude Code starts MCP servers by it without a shell. It lies beside the settings, where
// a sandbox around Claude Code shows it.
func claudeParts(p *Places) []Part {
	system := "/etc/claude-code"
	if runtime.GOOS == "darwin" {
		system = "/Library/Application Support/ClaudeCode"
	}
	dir := p.pick(p.folder("CLAUDE_CONFIG_DIR", ".claude"), ".claude", system)
	name := map[Scope]string{User: "settings.json", Project: "settings.local.json", System: "managed-settings.json"}[p.Scope]
	prefix := filepath.Join(dir, "cloche-prefix")
	// With args Claude Code starts the program itself. Otherwise it would start the hook by the prefix,
	// and a prefix of the project could answer in its place.
	hook := object{"type": "command", "command": p.Cloche, "args": []any{"hook", "claude"}, "timeout": 20, "onFailure": "block"}
	return []Part{
		{File: prefix, Program: true, Text: "#!/bin/sh\n# Written by cloche agent install claude.\nexec " + Quote(p.Cloche) + " " + ClaudeOption + " \"$@\"\n"},
		{File: filepath.Join(dir, name), Edits: []Edit{
			{Path: []string{"env", claudePrefix}, Value: prefix},
			{Path: []string{"hooks", "PreToolUse"}, Append: true, Value: object{"matcher": "Bash|Monitor", "hooks": []any{hook}}},
		}},
	}
}

// codexParts add the hook, and a rule that lets what it writes run outside of Codex's
// own sandbox, in which cloche could not make one. If the hook fails, that sandbox remains.
func codexParts(p *Places) []Part {
	dir := p.pick(p.folder("CODEX_HOME", ".codex"), ".codex", "")
	if dir == "" {
		return []Part{{}}
	}
	hook := object{"type": "command", "command": p.hook("codex"), "timeout": 20}
	return []Part{
		{File: filepath.Join(dir, "hooks.json"), Edits: []Edit{
			{Path: []string{"hooks", "PreToolUse"}, Append: true, Value: object{"matcher": "Bash", "hooks": []any{hook}}},
		}},
		{File: filepath.Join(dir, "rules", "cloche.rules"), Text: "# Written by cloche agent install codex: cloche confines what it runs.\n" +
			"prefix_rule(pattern=[" + jsonText(p.Cloche) + ", \"agent\", \"exec\"], decision=\"allow\")\n"},
	}
}

func geminiParts(p *Places) []Part {
	system := "/etc/gemini-cli/settings.json"
	if runtime.GOOS == "darwin" {
		system = "/Library/Application Support/GeminiCli/settings.json"
	}
	hook := object{"type": "command", "name": "cloche", "command": p.hook("gemini"), "timeout": 20000}
	return []Part{{File: p.pick(filepath.Join(p.Home, ".gemini", "settings.json"), ".gemini/settings.json", system), Comments: true, Edits: []Edit{
		{Path: []string{"hooks", "BeforeTool"}, Append: true, Value: object{"matcher": "run_shell_command", "hooks": []any{hook}}},
	}}}
}

// opencodeParts make cloche its shell: opencode calls it with -c, after its own rules have judged.
func opencodeParts(p *Places) []Part {
	user := filepath.Join(p.folder("XDG_CONFIG_HOME", ".config"), "opencode", "opencode.json")
	return []Part{{File: p.pick(user, "opencode.json", "/etc/opencode/opencode.json"), Comments: true, Edits: []Edit{{Path: []string{"shell"}, Value: p.Cloche}}}}
}

func copilotParts(p *Places) []Part {
	hook := object{"type": "command", "bash": p.hook("copilot"), "timeoutSec": 20}
	text := jsonIndented(object{"version": 1, "hooks": object{"preToolUse": []any{hook}}})
	return []Part{{File: p.pick(filepath.Join(p.folder("COPILOT_HOME", ".copilot"), "hooks", "cloche.json"), ".github/hooks/cloche.json", ""), Text: text}}
}

// copilotOverrides are the hooks of a project, and its settings, some of which Copilot CLI shares with Claude Code.
func copilotOverrides() []override {
	out := []override{{file: ".github/hooks"}}
	for _, file := range []string{".github/copilot/settings.json", ".github/copilot/settings.local.json", ".claude/settings.json", ".claude/settings.local.json"} {
		out = append(out, override{file, []string{"disableAllHooks"}, "false", true}, override{file, []string{"hooks", "preToolUse"}, "[]", true},
			override{file, []string{"hooks", "PreToolUse"}, "[]", true})
	}
	return out
}

// clineParts are a program. Cline runs the command if the hook fails, so the program
// says no in the hook's place.
func clineParts(p *Places) []Part {
	text := "#!/bin/sh\n# Written by cloche agent install cline.\nanswer=$(" + p.hook("cline") +
		") || answer='{\"cancel\":true,\"errorMessage\":\"cloche hook failed, so the command was not run\"}'\nprintf '%s\\n' \"$answer\"\n"
	return []Part{{File: p.pick(filepath.Join(p.Home, ".cline", "hooks", "PreToolUse"), ".clinerules/hooks/PreToolUse", ""), Text: text, Program: true}}
}

func cursorParts(p *Places) []Part {
	hook := object{"command": p.hook("cursor"), "matcher": "Shell", "failClosed": true}
	return []Part{{File: p.pick(filepath.Join(p.Home, ".cursor", "hooks.json"), ".cursor/hooks.json", ""), Edits: []Edit{
		{Path: []string{"version"}, Value: 1},
		{Path: []string{"hooks", "preToolUse"}, Append: true, Value: hook},
	}}}
}
