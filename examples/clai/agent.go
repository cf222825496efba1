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

// An agent has a policy, and what people have granted it since.
type agent struct {
	workspace string
	policy    policy.Policy
	desk      *grant.Desk
	store     *grant.Store
	run       int           // the number of the next command
	once      []grant.Grant // for that command alone
}

func newAgent(workspace, data string, person io.Reader, extra []policy.Option) (*agent, error) {
	doc, err := policy.Parse("policy.yaml", agentPolicy)
	if err != nil {
		return nil, err
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
	if err != nil {
		return nil, err
	}
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		data = filepath.Join(home, ".local", "share", "clai-example")
	}
	if data, err = filepath.Abs(data); err != nil {
		return nil, err
	}
	a := &agent{workspace: workspace, policy: p.With(extra...), store: grant.OpenStore(data)}
	a.desk = grant.NewDesk(grant.Options{
		Covered: a.covered, Store: a.store, Approvers: []grant.Approver{newPerson(person, os.Stderr)},
	})
	return a, nil
}

// open returns a session with everything that is granted now. A grant is an edit
// of the policy; the plan shows it with who gave it and why.
func (a *agent) open(ctx context.Context) (*cloche.Session, error) {
	kept, err := a.store.For(a.workspace)
	if err != nil {
		return nil, err
	}
	p := a.policy
	for _, grants := range [][]grant.Grant{kept, a.desk.Grants(), a.once} {
		for _, g := range grants {
			p = p.With(g.Option())
		}
	}
	// The store decides what later agents may do: no command sees it.
	p = p.With(policy.HidePaths("?" + filepath.Dir(a.store.Path())))
	return cloche.Open(ctx, p, cloche.WithWorkspace(a.workspace))
}

// capabilities is for the agent's prompt.
func (a *agent) capabilities(ctx context.Context) (answer, error) {
	session, err := a.open(ctx)
	if err != nil {
		return answer{}, err
	}
	defer session.Close()
	return answer{Text: session.Explain().Summary("call fs_request_grant with path, access and reason")}, nil
}

// bash runs a command. Without a sandbox it runs nothing, and says why.
func (a *agent) bash(ctx context.Context, script string) (answer, error) {
	session, err := a.open(ctx)
	if err != nil {
		return answer{}, err
	}
	defer session.Close()
	result, err := session.Command(ctx, "sh", "-c", script).Capture()
	a.run, a.once = a.run+1, nil
	reply := answer{}
	var unavailable *cloche.UnavailableError
	if errors.As(err, &unavailable) {
		reply.Notices = []notice{{sandboxUnavailable, fmt.Sprintf("%s: %v", unavailable.Cause(), err)}}
	}
	if err != nil {
		return reply, err
	}
	reply.ExitCode, reply.Stdout, reply.Stderr = &result.ExitCode, string(result.Stdout), string(result.Stderr)
	return reply, nil
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
	}
	return answer{Granted: g.String(), Notices: []notice{{pathGranted, fmt.Sprintf("%s, by %s, for: %s", g, g.By, g.Reason)}}}, nil
}

// covered reports what the policy and earlier grants allow.
func (a *agent) covered(r *grant.Request) (string, bool) {
	session, err := a.open(context.Background())
	if err != nil {
		return "", false
	}
	defer session.Close()
	decision, err := session.Check(string(r.Access), r.Path)
	return decision.Origin.String(), err == nil && decision.Allowed
}
