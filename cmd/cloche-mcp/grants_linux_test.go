package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A5: once is for one command, or for one file, and then used up.
func TestGrantedOnce(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	secret := a.home + "/.ssh/id_test"
	ask := func() {
		t.Helper()
		answers := make(chan answer, 1)
		go func() {
			answers <- a.use("request_grant", args{"path": secret, "access": "read", "reason": "it is a test"})
		}()
		a.decide(grant.Decision{Allow: true})
		if got := <-answers; got.Data["scope"] != "once" || got.Data["effective"] != true {
			t.Fatalf("%s", got.Text)
		}
	}
	a.fails("read_file", args{"path": secret}, "not visible")
	ask()
	a.works("read_file", args{"path": "hello.txt"}) // does not need it
	if got := a.works("read_file", args{"path": secret}); got.Data["text"] != "PRIVATE" {
		t.Errorf("%v", got.Data)
	}
	a.fails("read_file", args{"path": secret}, "not visible")
	ask()
	if got := a.shell("cat " + secret); got.Data["stdout"] != "PRIVATE" {
		t.Errorf("%s", got.Text)
	}
	if got := a.shell("cat " + secret); got.Data["exit_code"] == 0.0 {
		t.Errorf("it was used twice: %s", got.Text)
	}
}

// A6 A7: a person may give less, or nothing, or not be there.
func TestNarrowedDeniedUnanswered(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t, "--grant-timeout", "1s")
	ask := args{"path": a.beside, "access": "write", "reason": "why not"}
	got := a.works("request_grant", ask)
	if got.Data["granted"] != false {
		t.Errorf("%v", got.Data)
	}
	contains(t, got.Text, "denied", "nobody decided")

	b := newAgent(t)
	answers := make(chan answer, 1)
	ask["path"] = b.beside
	go func() { answers <- b.use("request_grant", ask) }()
	b.decide(grant.Decision{Note: "not today", By: "ana"})
	contains(t, (<-answers).Text, "denied: refused by ana: not today")

	must(t, os.Mkdir(b.beside+"/part", 0o755))
	go func() { answers <- b.use("request_grant", ask) }()
	b.decide(grant.Decision{Allow: true, Scope: grant.Session, Path: b.beside + "/part"})
	if got := <-answers; got.Data["path"] != b.beside+"/part" {
		t.Errorf("%v", got.Data)
	}
	if got := b.shell("echo x > " + b.beside + "/part/x"); got.Data["exit_code"] != 0.0 {
		t.Errorf("%s", got.Text)
	}
	if got := b.shell("echo x > " + b.beside + "/x"); got.Data["exit_code"] == 0.0 {
		t.Error("more than was given")
	}
	if got := b.works("request_grant", args{"path": "sub", "access": "write", "reason": "mine"}); got.Data["granted"] != true {
		t.Errorf("what is allowed already: %s", got.Text)
	}
}

// A7: nobody is asked for what no answer can give, and nothing is given for which no
// session could be opened any more.
func TestNobodyCanGrant(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	must(t, os.MkdirAll(a.home+"/.local/share/cloche", 0o700))
	for _, ask := range []args{
		{"host": "localhost:80", "access": "connect"}, {"host": "127.0.0.1:80", "access": "connect"}, {"host": "[::1]:80", "access": "connect"},
		{"path": "/proc/sys", "access": "write"}, {"path": "/sys/kernel", "access": "write"}, {"path": a.home + "/.local/share/cloche", "access": "read"},
	} {
		ask["reason"] = "it is a test"
		if got := a.use("request_grant", ask); got.Data["granted"] == true || !strings.Contains(got.Text, "can") || strings.Contains(got.Text, "denied") {
			t.Errorf("%v: %s", ask, got.Text)
		}
	}
	answers := make(chan answer, 1)
	go func() {
		answers <- a.use("request_grant", args{"path": a.home + "/.local/share", "access": "write", "reason": "it is a test"})
	}()
	desk, r := a.waiting()
	if _, err := desk.Decide(r.ID, grant.Decision{Allow: true, Scope: grant.Always, Path: a.home + "/.local/share/cloche"}); err == nil {
		t.Error("cloche's own files were given")
	}
	a.decide(grant.Decision{Note: "no"})
	<-answers
	if got := a.shell("echo works"); got.Data["exit_code"] != 0.0 {
		t.Errorf("%s", got.Text)
	}
}

// A8: what is granted always is for later clients of the workspace, until it is
// revoked, also for one that runs.
func TestGrantedAlways(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	answers := make(chan answer, 1)
	go func() {
		answers <- a.use("request_grant", args{"path": a.beside, "access": "write", "reason": "always"})
	}()
	_, g := a.decide(grant.Decision{Allow: true, Scope: grant.Always})
	<-answers
	must(t, a.leave())
	// What a later command line says of the path would take the grant back.
	a.connect(a.cmd.Path, "--workspace", a.ws, "--ro", a.home)
	if got := a.shell("echo x > " + a.beside + "/x"); got.Data["exit_code"] != 0.0 {
		t.Fatalf("the next client: %s", got.Text)
	}
	if revoked, err := grant.OpenStore(a.home + "/.local/share/cloche").Revoke(g.ID); err != nil || revoked == nil {
		t.Fatalf("%v, %v", revoked, err)
	}
	if got := a.shell("echo x > " + a.beside + "/x"); got.Data["exit_code"] == 0.0 {
		t.Error("it was revoked")
	}
}

// A granted path that a command has put a link into gives nothing.
func TestGrantIsNotFollowed(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	must(t, os.Mkdir(a.beside+"/part", 0o755))
	ask := func(path string, d grant.Decision) {
		t.Helper()
		answers := make(chan answer, 1)
		go func() { answers <- a.use("request_grant", args{"path": path, "access": "write", "reason": "x"}) }()
		a.decide(d)
		if got := <-answers; got.Data["effective"] != true {
			t.Fatalf("%s", got.Text)
		}
	}
	ask(a.beside+"/part", grant.Decision{Allow: true, Scope: grant.Session})
	ask(a.beside, grant.Decision{Allow: true})
	if got := a.shell("cd " + a.beside + " && mv part gone && ln -s " + a.home + "/.ssh part"); got.Data["exit_code"] != 0.0 {
		t.Fatalf("%s", got.Text)
	}
	for _, script := range []string{"cat " + a.home + "/.ssh/id_test", "cat " + a.beside + "/part/id_test"} {
		if got := a.shell(script); got.Data["exit_code"] == 0.0 {
			t.Errorf("%s: %s", script, got.Text)
		}
	}
	a.fails("read_file", args{"path": a.beside + "/part/id_test"}, "not visible")
}

// A5: a host is asked for like a path.
func TestGrantedHost(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	check := func() answer {
		return a.works("check_access", args{"action": "connect", "target": "registry.example:443"})
	}
	got := check()
	if got.Data["allowed"] != false {
		t.Fatalf("%s", got.Text)
	}
	ask, _ := got.Data["request_grant"].(map[string]any)
	if ask["host"] != "registry.example:443" || ask["access"] != "connect" {
		t.Fatalf("%v", got.Data)
	}
	ask["reason"] = "packages"
	answers := make(chan answer, 1)
	go func() { answers <- a.use("request_grant", ask) }()
	a.decide(grant.Decision{Allow: true, Scope: grant.Timed, For: time.Hour})
	if got := <-answers; got.Data["effective"] != true || got.Data["expires"] == nil {
		t.Errorf("%s", got.Text)
	}
	if got := check(); got.Data["allowed"] != true {
		t.Errorf("%s", got.Text)
	}
	contains(t, a.works("show_policy", nil).Text, "registry.example:443")
	if got := a.works("check_access", args{"action": "connect", "target": "other.example:443"}); got.Data["allowed"] != false {
		t.Errorf("%s", got.Text)
	}
}

// A7: an answer about a folder says what in it stays hidden, also where the folder is
// allowed already, and the question says so before the person decides.
func TestGrantNamesWhatStaysHidden(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	gh := a.home + "/.config/gh"
	must(t, os.MkdirAll(gh, 0o755))
	a.put(gh+"/config.yml", "editor: vi\n")
	a.put(gh+"/hosts.yml", "PRIVATE")
	a.fails("read_file", args{"path": gh + "/hosts.yml"}, "not visible")
	got := a.works("request_grant", args{"path": gh, "access": "read", "reason": "it is a test"})
	contains(t, got.Text, "allowed already", "but not "+gh+"/hosts.yml (hidden, preset secrets:", "ask for it by itself")
	if kept, _ := got.Data["not_opened"].([]any); len(kept) != 1 {
		t.Errorf("%v", got.Data)
	}
	answers := make(chan answer, 1)
	go func() {
		answers <- a.use("request_grant", args{"path": gh, "access": "write", "reason": "it is a test"})
	}()
	_, r := a.waiting()
	if len(r.Keeps) != 1 || r.Keeps[0].Path != gh+"/hosts.yml" {
		t.Errorf("the question says %+v", r.Keeps)
	}
	a.decide(grant.Decision{Allow: true, Scope: grant.Always})
	contains(t, (<-answers).Text, "from now on", "but not "+gh+"/hosts.yml (hidden, preset secrets:")
	a.fails("read_file", args{"path": gh + "/hosts.yml"}, "not visible")
	if got := a.shell("cat " + gh + "/hosts.yml"); got.Data["exit_code"] == 0.0 {
		t.Errorf("%s", got.Text)
	}
}
