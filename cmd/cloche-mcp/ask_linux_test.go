package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// N2 N11: with --ask a command of the agent that is refused waits for the person,
// and then goes on; what is granted for the session is so for the next command.
func TestAskWhileRunning(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	testenv.AlsoAsUser(t)
	a := newAgent(t, "--ask")
	secret := a.home + "/.ssh/id_test"
	run := func(script string, d grant.Decision) (answer, grant.Request) {
		answers := make(chan answer, 1)
		go func() { answers <- a.shell(script) }()
		r, _ := a.decide(d)
		return <-answers, r
	}
	got, r := run("cat "+secret, grant.Decision{Allow: true})
	if got.Data["stdout"] != "PRIVATE" || r.Path != secret || !r.Secret {
		t.Errorf("once: %s, %+v", got.Text, r)
	}
	if got, _ = run("cat "+secret, grant.Decision{By: "ana"}); got.Data["exit_code"] == 0.0 || strings.Contains(got.Text, "PRIVATE") {
		t.Errorf("refused: %s", got.Text)
	}
	if got, _ = run("cat "+secret, grant.Decision{Allow: true, Scope: grant.Session}); got.Data["stdout"] != "PRIVATE" {
		t.Errorf("for the session: %s", got.Text)
	}
	if got := a.shell("cat " + secret); got.Data["stdout"] != "PRIVATE" {
		t.Errorf("the next command: %s", got.Text)
	}
	if log := a.auditLog(); !strings.Contains(log, "(session)") {
		t.Errorf("the log has no grant:\n%s", log)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
}
