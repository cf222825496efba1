package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A Reply is what a hook answers: what it prints, and its exit status.
type Reply struct {
	Stdout, Stderr string
	Status         int
}

// maxInput bounds what a hook reads. maxArgument is the longest argument that Linux
// passes to a program: an agent's shell gets the command as one.
const (
	MaxInput    = 8 << 20
	maxArgument = 128 << 10
)

// blocked is the exit status by which a hook blocks, in every agent that looks at it.
const blocked = 2

// A call is a tool call that an agent asks its hook about.
type call struct {
	Caller
	event map[string]json.RawMessage
}

// A Caller is what a hook knows of where it is called.
type Caller struct {
	// Cloche is the path of this program.
	Cloche string
	// Prefix says why the prefix of Claude Code is not the one that was installed.
	Prefix func() error
}

// A replier answers for one agent. An error blocks the call, by refuse.
type replier struct {
	allow  func(*call) (any, error)
	refuse func(why string) any
}

// Answer answers the hook of an agent. Whatever it does not understand it blocks. A call
// of another tool than the shell gets no answer: the agent decides.
func (a *Agent) Answer(input []byte, from Caller) Reply {
	if a.reply.allow == nil {
		return a.Block(fmt.Errorf("%s has no hook; %s", a.Title, a.Instead))
	}
	c := &call{Caller: from}
	if len(input) > MaxInput {
		return a.Block(errors.New("the call is too large"))
	}
	if err := json.Unmarshal(input, &c.event); err != nil || c.event == nil {
		return a.Block(errors.New("the call is not a JSON object"))
	}
	out, err := a.reply.allow(c)
	switch {
	case err != nil:
		return a.Block(err)
	case out == nil:
		return Reply{}
	}
	return Reply{Stdout: jsonText(out) + "\n"}
}

// Block is the answer that keeps a call from running, whatever it is.
func (a *Agent) Block(err error) Reply {
	why := "cloche did not let this run: " + err.Error()
	r := Reply{Stderr: why + "\n", Status: blocked}
	if a.reply.refuse != nil {
		r.Stdout, r.Status = jsonText(a.reply.refuse(why))+"\n", 0
	}
	return r
}

// text returns a field that has to be a text.
func text(fields map[string]json.RawMessage, name string) (string, error) {
	var s *string
	if err := json.Unmarshal(fields[name], &s); err != nil || s == nil {
		return "", fmt.Errorf("the call has no text %q; is this version of the agent known to cloche? see cloche agent status", name)
	}
	return *s, nil
}

func fields(raw json.RawMessage, name string) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return nil, fmt.Errorf("the call has no object %q; is this version of the agent known to cloche? see cloche agent status", name)
	}
	return m, nil
}

// rewrite returns the input of a tool with its command under cloche.
func (c *call) rewrite(raw json.RawMessage, name string) (any, error) {
	input, err := fields(raw, name)
	if err != nil {
		return nil, err
	}
	script, err := text(input, "command")
	if err != nil {
		return nil, err
	}
	line, err := Line(c.Cloche, script)
	if err != nil {
		return nil, err
	}
	input["command"] = json.RawMessage(jsonText(line))
	return input, nil
}

// Line is the command line that runs a script under cloche.
func Line(cloche, script string) (string, error) {
	if strings.ContainsRune(script, 0) {
		return "", errors.New("the command contains a NUL byte, which no argument can have")
	}
	line := Quote(cloche) + " agent exec -- " + Quote(script)
	if len(line) >= maxArgument {
		return "", errors.New("the command is too long for one argument; write it to a file and run that")
	}
	return line, nil
}

// Quote quotes a text for a POSIX shell, so that it is one word, unchanged. A single quote
// is put in double ones, because Codex does not read a backslash as a shell does.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+", r)
	}
	if s != "" && strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

// claudeReply guards the prefix: the command itself is left as it is, so that the rules of
// Claude Code judge what the model wrote.
var claudeReply = replier{allow: func(c *call) (any, error) {
	tool, err := text(c.event, "tool_name")
	if err != nil {
		return nil, err
	}
	if tool == "Bash" || tool == "Monitor" {
		return nil, c.Prefix()
	}
	return nil, nil
}}

var codexReply = replier{allow: func(c *call) (any, error) {
	tool, err := text(c.event, "tool_name")
	if err != nil || tool != "Bash" {
		return nil, err
	}
	input, err := c.rewrite(c.event["tool_input"], "tool_input")
	if err != nil {
		return nil, err
	}
	return object{"hookSpecificOutput": object{"hookEventName": "PreToolUse", "permissionDecision": "allow", "permissionDecisionReason": "runs under cloche", "updatedInput": input}}, nil
}}

var geminiReply = replier{allow: func(c *call) (any, error) {
	tool, err := text(c.event, "tool_name")
	if err != nil || tool != "run_shell_command" {
		return nil, err
	}
	input, err := c.rewrite(c.event["tool_input"], "tool_input")
	if err != nil {
		return nil, err
	}
	return object{"hookSpecificOutput": object{"hookEventName": "BeforeTool", "tool_input": input}}, nil
}}

var copilotReply = replier{
	allow: func(c *call) (any, error) {
		tool, err := text(c.event, "toolName")
		if err != nil {
			return nil, err
		}
		switch tool {
		case "write_bash":
			return nil, errors.New("input to a shell that is still running could reach it after the sandboxed command has ended; put the whole input into one command")
		case "bash":
		default:
			return nil, nil
		}
		args := c.event["toolArgs"]
		var quoted string
		if json.Unmarshal(args, &quoted) == nil { // older versions pass JSON in a text
			args = json.RawMessage(quoted)
		}
		input, err := c.rewrite(args, "toolArgs")
		if err != nil {
			return nil, err
		}
		return object{"modifiedArgs": input}, nil
	},
	refuse: func(why string) any { return object{"permissionDecision": "deny", "permissionDecisionReason": why} },
}

var clineReply = replier{
	allow: func(c *call) (any, error) {
		tool, err := fields(c.event["tool_call"], "tool_call")
		if err != nil {
			return nil, err
		}
		name, err := text(tool, "name")
		if err != nil || name != "run_commands" {
			return object{"cancel": false}, err
		}
		input, err := fields(tool["input"], "input")
		if err != nil {
			return nil, err
		}
		var commands []string
		if json.Unmarshal(input["commands"], &commands) != nil || len(commands) == 0 {
			one, err := text(input, "commands")
			if err != nil {
				return nil, err
			}
			commands = []string{one}
		}
		for i := range commands {
			if commands[i], err = Line(c.Cloche, commands[i]); err != nil {
				return nil, err
			}
		}
		input["commands"] = json.RawMessage(jsonText(commands))
		return object{"cancel": false, "overrideInput": input}, nil
	},
	refuse: func(why string) any { return object{"cancel": true, "errorMessage": why} },
}

var cursorReply = replier{
	allow: func(c *call) (any, error) {
		tool, err := text(c.event, "tool_name")
		if err != nil || tool != "Shell" {
			return nil, err
		}
		input, err := c.rewrite(c.event["tool_input"], "tool_input")
		if err != nil {
			return nil, err
		}
		return object{"permission": "allow", "updated_input": input}, nil
	},
	refuse: func(why string) any { return object{"permission": "deny", "user_message": why, "agent_message": why} },
}

// CheckPrefix reports whether the prefix of Claude Code is one that was installed, and unchanged.
func CheckPrefix(installed []Record, getenv func(string) string) error {
	prefix := getenv(claudePrefix)
	for i := range installed {
		if r := &installed[i]; r.File == prefix && r.Edits == nil && r.check() == nil {
			return nil
		}
	}
	return errors.New(claudePrefix + " is not cloche's: a settings file of this project may have changed it; see cloche agent status claude")
}
