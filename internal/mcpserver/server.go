// Package mcpserver lets an agent work under a policy through the Model Context
// Protocol: it runs commands, reads and changes files, sees why something was
// refused, and asks for more.
//
// A server has one client and ends with it. The client is the agent's program,
// and everything that it says is taken for the words of whoever is confined:
// arguments are bounded and checked, no answer tells more of a hidden file than
// that it is not visible, and a request for access opens nothing until a person
// decides elsewhere, with `cloche approve`. With --ask-client the person may decide in
// the client's own window instead, and the client is trusted to report the answer.
package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/desksocket"
	"github.com/cloche-dev/cloche/internal/desktop"
)

// endTime is how long calls that are canceled may take to end before the server
// leaves them behind. Commands end in any case: they do not outlive the process.
const endTime = 5 * time.Second

// A client is all that belongs to one client.
type client struct {
	config   cli.MCP
	ctx      context.Context // ends when the client is gone
	desk     *grant.Desk
	dialog   *dialog // nil if the client is not trusted to ask
	sessions *sessions
	refusals refusals
	// noApproval is why nobody can decide about requests; nil if somebody can.
	noApproval error
	// running holds a place for each command that runs.
	running chan struct{}
	calls   sync.WaitGroup
	editing pathLock
}

// maxRunning bounds the commands that run at a time.
const maxRunning = 32

// Serve answers one client until it closes the connection or the context ends.
// Neither is an error.
func Serve(ctx context.Context, t mcp.Transport, config cli.MCP) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, end, err := newClient(ctx, config)
	if err != nil {
		return err
	}
	defer end()
	done := make(chan error, 1)
	go func() { done <- c.server().Run(ctx, t) }()
	select {
	case err = <-done:
		cancel()
		c.wait(endTime)
	case <-ctx.Done():
		c.wait(endTime)
		select {
		case err = <-done:
		case <-time.After(endTime): // the client does not read what is written to it
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// newClient opens the client's session and its desk.
func newClient(ctx context.Context, config cli.MCP) (c *client, end func(), err error) {
	c = &client{config: config, ctx: ctx, running: make(chan struct{}, maxRunning)}
	notifier := desktop.New()
	approvers := []grant.Approver{&announcer{to: config.Messages}}
	if config.AskClient {
		c.dialog = newDialog(ctx, config.Messages, notifier)
		approvers = append(approvers, c.dialog)
	} else {
		approvers = append(approvers, notifier)
	}
	c.desk = grant.NewDesk(grant.Options{
		Covered: c.covered, Check: c.tryGrant, Keeps: c.keeps, Real: realOrWritten, Timeout: config.GrantTimeout, Store: grant.OpenStore(config.DataDir), Decided: config.Decided,
		Approvers: approvers,
	})
	c.sessions = &sessions{config: config, desk: c.desk}
	s, err := c.sessions.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.release()
	socket, err := desksocket.Serve(c.desk, desksocket.Info{Pid: os.Getpid(), Command: []string{"cloche", "mcp"}, Workspace: config.Workspace, Started: time.Now().UTC(), Session: true})
	if err != nil {
		c.noApproval = err
		fmt.Fprintf(config.Messages, "cloche: requests for access are refused: %v\n", err)
		return c, func() { c.desk.Close(); notifier.Close(); c.sessions.close() }, nil
	}
	return c, func() { socket.Close(); c.desk.Close(); notifier.Close(); c.sessions.close() }, nil
}

// wait waits for the calls to end, no longer than that.
func (c *client) wait(limit time.Duration) {
	ended := make(chan struct{})
	go func() { c.calls.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(limit):
	}
}

// A call is one use of a tool.
type call struct{ request *mcp.CallToolRequest }

// add adds a tool. The handler returns words for the model and the same as data;
// an error is an answer as well, and says what to do.
func add[In, Out any](c *client, server *mcp.Server, t *mcp.Tool, h func(context.Context, call, In) (string, Out, error)) {
	t.InputSchema = inputSchema[In]()
	mcp.AddTool(server, t, func(ctx context.Context, r *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		c.calls.Add(1)
		defer c.calls.Done()
		c.dialog.use(r.Session)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		text, out, err := h(ctx, call{r}, in)
		if err != nil {
			return nil, out, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, out, nil
	})
}

// notify tells the client how a call goes on, if it wants to know. Progress must
// grow from call to call.
func (c call) notify(ctx context.Context, progress float64, text string) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// A client that cannot be told is gone, or will read the answer.
	_ = c.request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: progress, Message: text})
}
