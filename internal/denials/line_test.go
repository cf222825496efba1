package denials

import (
	"net/netip"
	"testing"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1: a refusal says what, by whom, by which rule, and what would allow it, in
// one line whatever the names are.
func TestDenialText(t *testing.T) {
	d := plan.Denial{Decision: plan.Decision{Op: plan.OpCreate, Path: "/ws/x/.vscode/a b\x1b[31m\nc", Access: policy.Read, Rule: "paths.protect", Subject: "/**/.vscode", At: "/ws/x/.vscode", Reason: "editors run it", Origin: policy.Origin{Layer: policy.LayerPreset, Source: "preset sinks", Line: 7}}, Program: "sh", Count: 3}
	want := `denied create "/ws/x/.vscode/a b\x1b[31m\nc" by sh (3 times): paths.protect /**/.vscode (preset sinks:7, editors run it); allow it with --rw '?/ws/x/.vscode'`
	judge.Fixer{}.Fix(&d.Decision)
	if got := Line(&d); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d = plan.Denial{Decision: plan.Decision{Op: plan.OpWrite, Path: "/etc/it's", Access: policy.Read, Rule: "paths.read", Subject: "/", At: "/"}, Count: 1}
	if got := fixOf(d); got != `--rw '/etc/it'\''s'` {
		t.Error(got)
	}
	d = plan.Denial{Decision: plan.Decision{Op: plan.OpWrite, Path: "/h/$HOME"}}
	if got := fixOf(d); got != `--rw '/h/$$HOME'` { // as a policy writes a dollar
		t.Error(got)
	}
	d = plan.Denial{Decision: plan.Decision{Op: plan.OpRead, Path: "/h/\x01", Rule: "paths.hide"}}
	if got := fixOf(d); got != `--ro $'/h/\x01'` {
		t.Error(got)
	}
	d = plan.Denial{Decision: plan.Decision{Op: plan.OpWrite, Path: "/ws/.git/config", Rule: "git.config"}}
	if got := fixOf(d); got != "" {
		t.Errorf("%s would not allow it", got)
	}
}

// N1: nothing opens the home, or a folder of it that all programs share, because one
// program wants to make a name there.
func TestDenialInSharedFolders(t *testing.T) {
	hidden := plan.Decision{Rule: "paths.hide", Subject: "~/.gnupg", At: "/h/ana/.gnupg", Access: policy.Hidden, Origin: policy.Origin{Layer: policy.LayerPreset}}
	read := plan.Decision{Rule: "paths.read", At: "/", Access: policy.Read}
	attempt := func(d plan.Decision, op plan.Op, path string) plan.Decision {
		d.Op, d.Path = op, path
		return d
	}
	for _, c := range []struct {
		d    plan.Decision
		want string
	}{
		{attempt(hidden, plan.OpMkdir, "/h/ana/.gnupg"), "--persist /h/ana/.gnupg, a folder of the sandbox's own"},
		{attempt(read, plan.OpMkdir, "/h/ana/.config/chromium"), "--persist /h/ana/.config/chromium, a folder of the sandbox's own; if it is made outside first, --rw /h/ana/.config/chromium opens that one"},
		{attempt(read, plan.OpCreate, "/h/ana/.toolrc"), "; make it outside first, then --rw /h/ana/.toolrc allows it"},
		{attempt(read, plan.OpMkdir, "/h/ana/.config/tool/x"), "--rw /h/ana/.config/tool"},
		{attempt(read, plan.OpMkdir, "/h/anabel/x"), "--rw /h/anabel, which opens all of that folder; if it is made outside first, --rw /h/anabel/x is enough"},
	} {
		judge.Fixer{Plan: &plan.Plan{Home: "/h/ana"}}.Fix(&c.d)
		if got := runoption.Text(c.d.Fix...) + remark(&c.d); got != c.want {
			t.Errorf("%s %s: %s", c.d.Op, c.d.Path, got)
		}
	}
}

// N1: one line, whatever a client asked for.
func TestNetDenialText(t *testing.T) {
	rules := policy.Policy{}.With(policy.Set("network.deny", "bad.com")).Network
	network := plan.Network{Mode: policy.NetworkUser, Deny: []plan.HostPort{plan.HostPort(rules.Deny[0])}}
	j := judge.NewNetwork(&network)
	line := func(d plan.Denial) string { return Line(&d) }
	web := judge.Dest{Protocol: "tcp", Names: []string{"a.com"}, Addr: netip.MustParseAddr("8.8.8.8"), Port: 80}
	bad := judge.Dest{Protocol: "tcp", Names: []string{"bad.com"}, Addr: netip.MustParseAddr("8.8.8.8"), Port: 443}
	udp := judge.Dest{Protocol: "udp", Addr: netip.MustParseAddr("9.9.9.9"), Port: 53}
	request := j.Request(web, "POST", "a.com", "/v1/x").Denial(plan.OpRequest, web, "POST", "/v1/x")
	request.Program = "curl"
	mode := func(layer policy.Layer) judge.NetDecision {
		return judge.NetDecision{Decision: plan.Decision{Rule: judge.RuleNetworkMode, Subject: "none", Origin: policy.Origin{Layer: layer}}}
	}
	name := judge.Dest{Names: []string{"a.com"}}
	for _, c := range []struct{ got, want string }{
		{line(request), "denied request POST http://a.com/v1/x by curl: network.allow (builtin, no entry of the list allows it); allow it with --allow http://a.com/v1/x"},
		{line(j.Connect(bad).Denial(plan.OpConnect, bad, "", "")), "denied connect bad.com:443 (8.8.8.8): network.deny bad.com (Go API); to allow it, change or leave out that rule, which no option overrules"},
		{line(j.Connect(udp).Denial(plan.OpConnect, udp, "", "")), "denied connect udp://9.9.9.9:53: network.allow (builtin, no entry of the list allows it); allow it with --allow udp://9.9.9.9:53"},
		{line(j.Name("x\x1b[31m\n").Denial(plan.OpResolve, judge.Dest{Names: []string{"x\x1b[31m\n"}}, "", "")), `denied resolve "x\x1b[31m\n": network.allow (builtin, it is no name of a host); no option allows it`},
		{line(mode(policy.LayerPreset).Denial(plan.OpResolve, name, "", "")), "denied resolve a.com: network.mode none (preset); allow it with --allow a.com"},
		{line(mode(policy.LayerCommand).Denial(plan.OpResolve, name, "", "")), "denied resolve a.com: network.mode none (command); allow it with --net user --allow a.com"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

// fixOf is the option that allows it.
func fixOf(d plan.Denial) string {
	judge.Fixer{}.Fix(&d.Decision)
	return runoption.Text(d.Fix...)
}
