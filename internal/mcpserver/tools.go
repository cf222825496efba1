package mcpserver

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The names of the tools.
const (
	toolRun     = "run_command"
	toolRead    = "read_file"
	toolWrite   = "write_file"
	toolEdit    = "edit_file"
	toolList    = "list_directory"
	toolRequest = "request_grant"
	toolCheck   = "check_access"
	toolExplain = "explain_denial"
	toolPolicy  = "show_policy"
)

const instructions = `Commands and files are confined by a policy. What is refused is refused on purpose: do not look for a way around it.
When a call is refused, read the reason. If the task needs the access, call request_grant with the path or host that the refusal names and one sentence why; a person decides. Otherwise go on without it.
Call show_policy first to see what is readable, writable and reachable. Relative paths begin in `

// server makes the server with its tools.
func (c *client) server() *mcp.Server {
	options := &mcp.ServerOptions{Instructions: instructions + visible(c.config.Dir) + ".", Capabilities: &mcp.ServerCapabilities{}}
	if c.dialog != nil {
		options.SupportedProtocolVersions = beforeDialogsEnd
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "cloche", Title: "cloche sandbox", Version: c.config.Version}, options)
	yes, no := true, false
	reads := func(title string) *mcp.ToolAnnotations {
		return &mcp.ToolAnnotations{Title: title, ReadOnlyHint: true, OpenWorldHint: &no}
	}
	writes := func(title string, destructive *bool, open *bool) *mcp.ToolAnnotations {
		return &mcp.ToolAnnotations{Title: title, DestructiveHint: destructive, OpenWorldHint: open}
	}
	add(c, s, &mcp.Tool{Name: toolRun, Annotations: writes("Run a command", &yes, &yes),
		Description: "Run a program (argv) or a shell script (shell) in the sandbox and wait for it. Returns the exit code, the end of stdout and stderr, and what the sandbox refused. /tmp is empty for each command; nothing keeps running after it. On a refusal: if the task needs that access, call request_grant as the refusal says and run the command again."}, c.run)
	add(c, s, &mcp.Tool{Name: toolRead, Annotations: reads("Read a file"),
		Description: "Read lines of a text file. Returns at most 2000 lines and 64 KiB; next_line says where to go on. A path that is \"not visible\" is hidden or missing; if you need it, call request_grant with access read."}, c.readFile)
	add(c, s, &mcp.Tool{Name: toolWrite, Annotations: writes("Write a file", &yes, &no),
		Description: "Create a file or replace its whole content. Missing folders are made. To change a part of a file use edit_file. If it is refused and the task needs it, call request_grant with access write."}, c.writeFile)
	add(c, s, &mcp.Tool{Name: toolEdit, Annotations: writes("Edit a file", &yes, &no),
		Description: "Replace old_text by new_text in a file. old_text must occur exactly once, byte for byte, so include enough of its surroundings; or set replace_all."}, c.editFile)
	add(c, s, &mcp.Tool{Name: toolList, Annotations: reads("List a folder"),
		Description: "List the names in a folder, sorted, with their kinds. Kind \"hidden\" marks what the policy does not let you see."}, c.listDirectory)
	add(c, s, &mcp.Tool{Name: toolRequest, Annotations: writes("Ask a person for access", &no, &no),
		Description: "Ask a person for access that the policy refuses: read or write of a path, or connect to a host. Ask for as little as the task needs and say why. Waits until they decide; they may give less. No answer in time means no. After a no, do not ask for the same again: go on without it or tell the user."}, c.requestGrant)
	add(c, s, &mcp.Tool{Name: toolCheck, Annotations: reads("Check access"),
		Description: "Say whether a command could read, write or execute a path, or connect to a host, which rule decides, and what to ask for if not. Nothing is touched."}, c.checkAccess)
	add(c, s, &mcp.Tool{Name: toolExplain, Annotations: reads("Explain refusals"),
		Description: "List what was refused to your recent commands: what was attempted, by which program, by which rule, and the request_grant call that asks for it."}, c.explainDenial)
	add(c, s, &mcp.Tool{Name: toolPolicy, Annotations: reads("Show the policy"),
		Description: "Say in words what you can read, write and reach, the limits of commands, and what was granted so far."}, c.showPolicy)
	return s
}

// choices are the words that some arguments are limited to.
var choices = map[string][]any{
	"access": {"read", "write", "connect"},
	"action": {"read", "write", "exec", "connect"},
}

// inputSchema is the schema of a tool's arguments. A list that is not given is
// left out and never null: some clients know one type for each argument only.
func inputSchema[In any]() *jsonschema.Schema {
	s, err := jsonschema.For[In](nil)
	if err != nil {
		panic("the arguments of a tool have no schema: " + err.Error()) // of a type in this package
	}
	for name, p := range s.Properties {
		if slices.Contains(p.Types, "null") {
			p.Type, p.Types = p.Types[1-slices.Index(p.Types, "null")], nil
		}
		if words, ok := choices[name]; ok {
			p.Enum = words
		}
	}
	return s
}
