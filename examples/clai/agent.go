package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The notices that a run may carry.
const (
	pathGranted        = "path_granted"
	pathGrantDenied    = "path_grant_denied"
	sandboxUnavailable = "sandbox_unavailable"
)

// A notice is something about a run that its user should see.
type notice struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// keyring is the name on the session bus behind gh, git and secret-tool.
const keyring = "org.freedesktop.secrets"

// An agent has a session, which knows what people have granted since it began.
type agent struct {
	workspace string
	policy    policy.Policy
	session   *cloche.Session
	desk      *grant.Desk
	run       int           // the number of the next command
	once      []grant.Grant // for that command alone
}

// settings are what the program's flags say about its agent.
type settings struct {
	workspace string
	data      string // where the store is
	live      bool   // calls that are refused wait for the person
	extra     []policy.Option
}

func newAgent(ctx context.Context, set settings, person io.Reader) (*agent, error) {
	doc, err := policy.Parse("policy.yaml", agentPolicy)
	if err != nil {
		return nil, err
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
	if err != nil {
		return nil, err
	}
	store, err := openStore(set.data)
	if err != nil {
		return nil, err
	}
	kept, err := store.For(set.workspace)
	if err != nil {
		return nil, err
	}
	for i := range kept { // given always, in earlier sessions
		p = p.With(kept[i].Kept())
	}
	// The store decides what later agents may do: no command sees it.
	p = p.With(set.extra...).With(policy.HidePaths("?" + filepath.Dir(store.Path())))
	a := &agent{workspace: set.workspace, policy: p}
	desk := grant.Options{Covered: a.covered, Store: store, Approvers: []grant.Approver{newPerson(person, os.Stderr)}}
	options := []cloche.Option{cloche.WithWorkspace(set.workspace)}
	if set.live {
		options = append(options, cloche.WithAsk(desk))
	}
	if a.session, err = cloche.Open(ctx, p, options...); err != nil {
		return nil, err
	}
	if a.desk = a.session.Desk(); a.desk == nil {
		a.desk = grant.NewDesk(desk)
	}
	return a, nil
}

func openStore(data string) (*grant.Store, error) {
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		data = filepath.Join(home, ".local", "share", "clai-example")
	}
	data, err := filepath.Abs(data)
	return grant.OpenStore(data), err
}

func (a *agent) close() {
	a.desk.Close()
	a.session.Close()
}

// command returns the next command. A grant is an edit of the policy: one that is
// for a single command makes a session for that command.
func (a *agent) command(ctx context.Context, script string) (*cloche.Cmd, func(), error) {
	session, done := a.session, func() {}
	if len(a.once) > 0 {
		p := a.policy
		for _, g := range append(a.session.Grants(), a.once...) {
			p = p.With(g.Option())
		}
		single, err := cloche.Open(ctx, p, cloche.WithWorkspace(a.workspace))
		if err != nil {
			return nil, nil, err
		}
		session, done = single, func() { single.Close() }
	}
	a.run, a.once = a.run+1, nil
	return session.Command(ctx, "sh", "-c", script), done, nil
}

// capabilities is for the agent's prompt.
func (a *agent) capabilities(ctx context.Context) answer {
	text, err := a.session.Summary(ctx, "call fs_request_grant with path, access and reason")
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Text: text}
}

// bash runs a command. Without a sandbox it runs nothing, and says why.
func (a *agent) bash(ctx context.Context, script string) (answer, error) {
	cmd, done, err := a.command(ctx, script)
	if err != nil {
		return answer{}, err
	}
	defer done()
	result, err := cmd.Capture()
	var unavailable *cloche.UnavailableError
	if errors.As(err, &unavailable) {
		return answer{Notices: []notice{{sandboxUnavailable, fmt.Sprintf("%s: %v", unavailable.Cause(), err)}}}, err
	}
	if err != nil {
		return answer{}, err
	}
	return answer{ExitCode: &result.ExitCode, Stdout: string(result.Stdout), Stderr: string(result.Stderr)}, nil
}

// request asks a person, unless the policy covers the path already.
func (a *agent) request(ctx context.Context, c call) (answer, error) {
	g, err := a.desk.Ask(ctx, grant.Request{
		Path: c.Path, Access: grant.Access(c.Access), Reason: c.Reason, Workspace: a.workspace, Run: strconv.Itoa(a.run),
	})
	var denied *grant.DeniedError
	switch {
	case errors.As(err, &denied):
		return answer{Notices: []notice{{pathGrantDenied, err.Error()}}}, err
	case err != nil:
		return answer{}, err
	case g.ID == "": // nobody was asked
		return answer{Granted: g.String()}, nil
	case g.Scope == grant.Once:
		a.once = append(a.once, *g)
	default:
		if err := a.session.Grant(ctx, *g); err != nil {
			return answer{}, err
		}
	}
	return answer{Granted: g.String(), Notices: []notice{{pathGranted, fmt.Sprintf("%s, by %s, for: %s", g, g.By, g.Reason)}}}, nil
}

// covered reports what the policy and earlier grants allow.
func (a *agent) covered(r *grant.Request) (string, bool) {
	decision, err := a.session.Check(plan.Op(r.Access), r.Path)
	return decision.Origin.String(), err == nil && decision.Allowed
}
