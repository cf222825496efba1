// Command cloche-mcp is the MCP server that `cloche mcp` starts. It is a program
// of its own because the protocol's library makes a program start late, and
// cloche is started for every command.
package main

import (
	"context"
	"os"

	"github.com/cloche-dev/cloche/https"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/mcpserver"
)

func main() { os.Exit(cli.MCPMain(os.Args[1:], serve, https.Inspect)) }

func serve(ctx context.Context, m cli.MCP) error {
	return mcpserver.Serve(ctx, &mcpserver.Lines{Reader: os.Stdin, Writer: os.Stdout}, m)
}
