package resolve

import (
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// L1 F14 L6: rules hold at every place where a bind shows their paths.
func TestRulesHoldInBinds(t *testing.T) {
	p := workspacePolicy(rule(policy.Hidden, "/home/ana/.ssh"), rule(policy.Read, "/home/ana/project/secrets/public"), rule(policy.Hidden, "/home/ana/project/secrets")).
		With(policy.WithBind("~", "/home/dev", false), policy.WithBind("/", "/host", true))
	m := machine()
	m.Sockets = []string{"/home/ana/project/own.sock", "/run/agent"}
	got := mustResolve(t, p, Request{}, m)
	wantAccess(t, got, map[string]policy.Access{
		"/home/dev/.bashrc": policy.Write, "/home/dev/.ssh/id": policy.Hidden, "/home/dev/.config/cloche/policy.yaml": policy.Hidden,
		"/home/dev/.local/state/cloche": policy.Hidden, "/home/dev/project/secrets/key": policy.Hidden, "/home/dev/project/secrets/public/k": policy.Read,
		"/home/dev/project/own.sock": policy.Hidden, "/home/ana/project/own.sock": policy.Hidden,
		"/host/usr/bin/true": policy.Read, "/host/home/ana/project": policy.Read, "/host/home/ana/.ssh": policy.Hidden,
		"/host/proc/1": policy.Hidden, "/host/dev/sda": policy.Hidden, "/host/run/agent": policy.Hidden,
	})
	if l := got.Lookup("/host/tmp/x"); l.Content == plan.Host {
		t.Errorf("the host's /tmp is shown: %+v", l)
	}
}

// L1: a rule for the second place itself stays, but never opens cloche's own.
func TestRulesForTheTargetOfABind(t *testing.T) {
	m := machine()
	m.FS.(hostfs.Tree)["/home/dev/.ssh"] = "dir"
	p := workspacePolicy(rule(policy.Hidden, "/home/ana/.ssh"), rule(policy.Read, "/home/dev/.ssh")).With(policy.WithBind("~", "/home/dev", true))
	got := mustResolve(t, p, Request{}, m)
	wantAccess(t, got, map[string]policy.Access{"/home/dev/.ssh": policy.Read, "/home/dev/.config/cloche": policy.Hidden})
}
