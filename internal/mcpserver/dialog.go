package mcpserver

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/desktop"
)

// A dialog asks the user of the client about requests, in a window of the client (an MCP
// elicitation). Only a user who trusts the client's window has one (--ask-client): the
// client, and not cloche, shows the question and reports the answer.
//
// Other ways to decide stay open. A client that cannot ask, or whose user closes the window
// without an answer, leaves the request to `cloche approve`.
type dialog struct {
	ctx      context.Context // ends when the client is gone
	messages io.Writer
	desktop  *desktop.Notifier // says it where the client does not ask

	mu      sync.Mutex
	session *mcp.ServerSession            // nil before the first call
	open    map[string]context.CancelFunc // by the request's id
}

func newDialog(ctx context.Context, messages io.Writer, n *desktop.Notifier) *dialog {
	return &dialog{ctx: ctx, messages: messages, desktop: n, open: map[string]context.CancelFunc{}}
}

// beforeDialogsEnd are the versions of the protocol in which a server may ask the client
// while it answers a call. From 2026-07-28 on it may not.
var beforeDialogsEnd = []string{"2025-11-25", "2025-06-18"}

// answers are the choices of the dialog, and what each of them decides.
var answers = []struct {
	text     string
	decision grant.Decision
}{
	{"deny", grant.Decision{}},
	{"allow once", grant.Decision{Allow: true, Scope: grant.Once}},
	{"allow for this session", grant.Decision{Allow: true, Scope: grant.Session}},
}

// use makes the dialog ask in the session of a call. A nil dialog asks nowhere.
func (d *dialog) use(s *mcp.ServerSession) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = s
}

// canAsk reports whether the client says that it can show questions.
func (d *dialog) canAsk() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		return false
	}
	p := d.session.InitializeParams()
	return p != nil && p.Capabilities != nil && p.Capabilities.Elicitation != nil
}

// Asked shows a request to the user of the client.
func (d *dialog) Asked(desk *grant.Desk, r grant.Request) {
	if !d.canAsk() {
		d.desktop.Asked(desk, r)
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	d.mu.Lock()
	session := d.session
	d.open[r.ID] = cancel
	d.mu.Unlock()
	if !isPending(desk, r) {
		d.Withdrawn(r) // somebody decided before the window was there to be closed
		return
	}
	go func() {
		defer cancel()
		d.ask(ctx, session, desk, r)
	}()
}

// Withdrawn closes the window of a request that was decided elsewhere.
func (d *dialog) Withdrawn(r grant.Request) {
	d.desktop.Withdrawn(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.open[r.ID]; cancel != nil {
		cancel()
		delete(d.open, r.ID)
	}
}

func (d *dialog) ask(ctx context.Context, session *mcp.ServerSession, desk *grant.Desk, r grant.Request) {
	result, err := session.Elicit(ctx, &mcp.ElicitParams{Message: "cloche: allow this?\n" + cli.RequestText(r), RequestedSchema: answerSchema()})
	if ctx.Err() != nil {
		return // decided elsewhere, or the client is gone
	}
	if err != nil {
		fmt.Fprintf(d.messages, "cloche: the client did not ask about request %s: %s; decide with: cloche approve\n", r.ID, visible(err.Error()))
		d.elsewhere(desk, r)
		return
	}
	decision, ok := decided(result)
	if !ok {
		d.elsewhere(desk, r)
		return
	}
	decision.By = "the user of " + clientOf(session)
	if _, err := desk.Decide(r.ID, decision); err != nil {
		fmt.Fprintf(d.messages, "cloche: request %s: %s\n", r.ID, visible(err.Error()))
	}
}

// elsewhere says on the desktop that a request waits which the client did not decide.
func (d *dialog) elsewhere(desk *grant.Desk, r grant.Request) {
	d.desktop.Asked(desk, r)
	if !isPending(desk, r) {
		d.desktop.Withdrawn(r)
	}
}

func isPending(desk *grant.Desk, r grant.Request) bool {
	return slices.ContainsFunc(desk.Pending(), func(p grant.Request) bool { return p.ID == r.ID })
}

// decided is what the user chose; false if the window was closed without a choice, or the
// answer is none of those that were offered.
func decided(result *mcp.ElicitResult) (grant.Decision, bool) {
	switch result.Action {
	case "decline":
		return grant.Decision{}, true
	case "accept":
		for _, a := range answers {
			if result.Content["decision"] == a.text {
				return a.decision, true
			}
		}
	}
	return grant.Decision{}, false
}

// answerSchema describes the form that the client shows: one choice.
func answerSchema() *jsonschema.Schema {
	var choices []any
	for _, a := range answers {
		choices = append(choices, a.text)
	}
	return &jsonschema.Schema{
		Type:       "object",
		Properties: map[string]*jsonschema.Schema{"decision": {Type: "string", Title: "Decision", Enum: choices}},
		Required:   []string{"decision"},
	}
}
