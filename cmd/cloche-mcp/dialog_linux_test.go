package main

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A scriptedPerson gives one answer after the other in the client's window, and keeps the
// questions. Without an answer it leaves the window open until it is closed.
type scriptedPerson struct {
	mu        sync.Mutex
	answers   []*mcp.ElicitResult
	questions []string
	closed    chan struct{} // gets a value when an open window is closed
}

func (p *scriptedPerson) answer(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p.mu.Lock()
	p.questions = append(p.questions, r.Params.Message)
	var next *mcp.ElicitResult
	if len(p.answers) > 0 {
		next, p.answers = p.answers[0], p.answers[1:]
	}
	p.mu.Unlock()
	if next != nil {
		return next, nil
	}
	<-ctx.Done()
	p.closed <- struct{}{}
	return nil, ctx.Err()
}

// last is the last question.
func (p *scriptedPerson) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.questions) == 0 {
		return ""
	}
	return p.questions[len(p.questions)-1]
}

func chose(decision string) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision}}
}

// N11: with --ask-client a person decides in the agent's own window, about what the
// agent asks for and about what its commands are denied.
func TestAskClient(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	testenv.AlsoAsUser(t)
	p := &scriptedPerson{closed: make(chan struct{}, 8)}
	a := newAgentOf(t, p.answer, "--ask-client", "--ask")
	secret := a.home + "/.ssh/id_test"
	ask := func(result *mcp.ElicitResult, path, reason string) answer {
		p.mu.Lock()
		p.answers = append(p.answers, result)
		p.mu.Unlock()
		return a.works("request_grant", args{"path": path, "access": "read", "reason": reason})
	}

	got := ask(chose("deny"), secret, "to sign in")
	if got.Data["granted"] != false {
		t.Errorf("denied: %s", got.Text)
	}
	contains(t, p.last(), "wants to   read "+secret, "they say   to sign in", "may hold secrets")
	if got = ask(&mcp.ElicitResult{Action: "decline"}, secret, "again"); got.Data["granted"] != false {
		t.Errorf("declined: %s", got.Text)
	}
	got = ask(chose("allow once"), secret, "a word \x1b[8m\nwants to   read /etc/motd")
	if got.Data["granted"] != true || got.Data["scope"] != string(grant.Once) {
		t.Errorf("allowed once: %s", got.Text)
	}
	if q := p.last(); strings.Contains(q, "\x1b") || strings.Contains(q, "\nwants to   read /etc/motd") {
		t.Errorf("the agent's words look like cloche's: %q", q)
	}
	if got := a.shell("cat " + secret); got.Data["stdout"] != "PRIVATE" {
		t.Errorf("the command after it: %s", got.Text)
	}

	// A command that is denied waits for the same window.
	p.mu.Lock()
	p.answers = append(p.answers, chose("allow for this session"))
	p.mu.Unlock()
	if got := a.shell("cat " + secret); got.Data["stdout"] != "PRIVATE" {
		t.Errorf("the command that asked: %s", got.Text)
	}
	if got := a.shell("cat " + secret); got.Data["stdout"] != "PRIVATE" {
		t.Errorf("the next command: %s", got.Text)
	}
	contains(t, a.auditLog(), "the user of test agent")
}

// N11: a window that is closed without a choice, or an answer that was not offered, decides
// nothing. The request waits for cloche approve, which closes an open window.
func TestAskClientUndecided(t *testing.T) {
	testenv.Need(t, "userns")
	for name, answers := range map[string][]*mcp.ElicitResult{
		"canceled": {{Action: "cancel"}},
		"other":    {{Action: "accept"}},
		"open":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			p := &scriptedPerson{closed: make(chan struct{}, 8), answers: answers}
			a := newAgentOf(t, p.answer, "--ask-client")
			out := make(chan answer, 1)
			go func() {
				out <- a.use("request_grant", args{"path": a.home + "/.ssh/id_test", "access": "read", "reason": "a test"})
			}()
			testenv.Eventually(t, "the question", func() bool { return p.last() != "" })
			a.decide(grant.Decision{Allow: true, By: "ana"})
			if got := <-out; got.Data["granted"] != true {
				t.Errorf("%s", got.Text)
			}
			if name == "open" {
				<-p.closed
			}
		})
	}
}

// N11: without --ask-client the client is not asked, whatever it says that it can do: it may
// be the agent's own program.
func TestClientIsNotAsked(t *testing.T) {
	testenv.Need(t, "userns")
	p := &scriptedPerson{closed: make(chan struct{}, 8), answers: []*mcp.ElicitResult{chose("allow for this session")}}
	a := newAgentOf(t, p.answer)
	out := make(chan answer, 1)
	go func() {
		out <- a.use("request_grant", args{"path": a.home + "/.ssh/id_test", "access": "read", "reason": "a test"})
	}()
	a.decide(grant.Decision{By: "ana"})
	if got := <-out; got.Data["granted"] != false || p.last() != "" {
		t.Errorf("%s, and the client was asked %q", got.Text, p.last())
	}
}
