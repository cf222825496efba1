package resolve

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func userNetwork(options ...policy.Option) policy.Policy {
	return workspacePolicy().With(append([]policy.Option{policy.AllowHosts("a.example:443")}, options...)...)
}

// L5: the link is what works here, and what was chosen by name has to work.
func TestLink(t *testing.T) {
	yes, no := host.Probe{Outcome: host.Yes}, host.Probe{Outcome: host.No, Reason: "permission denied", Fix: "ask root"}
	for _, tt := range []struct {
		name      string
		asked     policy.Link
		tun, veth host.Probe
		want      policy.Link
		reason    string
	}{
		{"both", policy.LinkAuto, yes, yes, policy.LinkTUN, ""},
		{"no TUN", policy.LinkAuto, no, yes, policy.LinkVeth, "no TUN device: permission denied"},
		{"neither", policy.LinkAuto, no, no, policy.LinkProxy, "no TUN device: permission denied; no pair of virtual devices: permission denied"},
		{"not known", policy.LinkAuto, host.Probe{}, host.Probe{}, policy.LinkProxy, "no TUN device: not tried; no pair of virtual devices: not tried"},
		{"by name", policy.LinkVeth, yes, yes, policy.LinkVeth, ""},
		{"by name, not known", policy.LinkTUN, host.Probe{}, host.Probe{}, policy.LinkTUN, ""},
	} {
		m := machine()
		m.Networking.TUN, m.Networking.Veth = tt.tun, tt.veth
		p := mustResolve(t, userNetwork(policy.Set("network.link", tt.asked.String())), Request{}, m)
		if n := p.Network; n.Link != tt.want || n.LinkReason != tt.reason || n.LinkOrigin.IsZero() {
			t.Errorf("%s: got %s because %q by %v", tt.name, n.Link, n.LinkReason, n.LinkOrigin)
		}
	}
	m := machine()
	m.Networking.TUN = no
	_, err := Resolve(userNetwork(policy.Set("network.link", "tun")), Request{Workspace: m.Cwd}, m)
	if err == nil || !strings.Contains(err.Error(), "cannot be made here: permission denied") || !strings.Contains(err.Error(), "ask root") {
		t.Errorf("got %v", err)
	}
	if n := mustResolve(t, workspacePolicy(), Request{}, m).Network; n.Link != policy.LinkAuto || n.LinkReason != "" {
		t.Errorf("without a user-mode network: got %+v", n)
	}
}

// N3 W4: rules and ports go into the plan with nothing left out.
func TestNetworkPlan(t *testing.T) {
	pol := userNetwork(policy.AllowHosts("http://b.example/v1/**", "udp://c.example:1-2"), policy.Set("network.deny", "d.example"), policy.Set("network.publish", "8080:80", "[::1]:53/udp"), policy.Set("network.forward", "5432"))
	pol.Network.Allow[0].Reason, pol.Network.Allow[1].Methods = "why", []string{"GET"}
	n := mustResolve(t, pol, Request{}, machine()).Network
	var got []string
	for _, h := range append(n.Allow, n.Deny...) {
		got = append(got, h.String()+" "+h.Reason)
	}
	for _, p := range append(n.Publish, n.Forward...) {
		got = append(got, p.Address+" "+p.String())
	}
	want := "a.example:443 why|GET http://b.example/v1/** |udp://c.example:1-2 |d.example |127.0.0.1 8080:80|::1 [::1]:53/udp|127.0.0.1 5432"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
	if !n.NeedsHelp() || (&plan.Network{}).NeedsHelp() || !(&plan.Network{Forward: n.Forward}).NeedsHelp() {
		t.Error("who serves the network is wrong")
	}
}

// A rule that claims to be built in is the caller's.
func TestNetworkRulesAreClaimed(t *testing.T) {
	pol := workspacePolicy()
	pol.Network = policy.Network{Mode: policy.NetworkUser, Allow: []policy.HostRule{{Host: "a"}}, Forward: []policy.PortRule{{Host: 1, Inside: 1}}}
	n := mustResolve(t, pol, Request{}, machine()).Network
	if n.Allow[0].Origin.Layer != policy.LayerCommand || n.Forward[0].Origin.Source != "Go API" || !pol.Network.Allow[0].Origin.IsZero() {
		t.Errorf("got %+v", n)
	}
}

// L4 L5: names are looked up by the sandbox's own server, wherever the files are.
func TestResolverFiles(t *testing.T) {
	text := func(p *plan.Plan, at string) string {
		line := p.Lookup(at)
		if line.Content != plan.Text || line.Path != at || line.Access != policy.Read {
			return ""
		}
		return line.Text
	}
	m := machine()
	tree := m.FS.(hostfs.Tree)
	tree["/etc/nsswitch.conf"], tree["/etc/static/nss"] = "-> static/nss", "file"
	m.Networking.TUN, m.Networking.Hostname = host.Probe{Outcome: host.Yes}, "Box.example"
	m.Networking.NameService = "passwd: files systemd\n hosts : mdns4 [NOTFOUND=return] dns\n#hosts\nhosts: x\ngroup: files"
	for _, reads := range []policy.Reads{policy.ReadsHost, policy.ReadsSystem} {
		p := mustResolve(t, userNetwork(policy.Set("reads", reads.String())), Request{}, m)
		if got := text(p, "/run/resolve/stub.conf"); !strings.HasPrefix(got, "nameserver 127.0.0.1\n") {
			t.Errorf("reads %s: resolv.conf is %q", reads, got)
		}
		if got := text(p, "/etc/static/nss"); got != "passwd: files systemd\n#hosts\ngroup: files\nhosts: files dns\n" {
			t.Errorf("reads %s: nsswitch.conf is %q", reads, got)
		}
		if got := text(p, "/etc/hosts"); got != defaultHosts+"127.0.1.1\tbox.example box\n" {
			t.Errorf("reads %s: hosts is %q", reads, got)
		}
	}
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback, policy.NetworkHost} {
		p := mustResolve(t, workspacePolicy().With(policy.WithNetwork(mode)), Request{}, m)
		if line := p.Lookup("/run/resolve/stub.conf"); line.Content != plan.Host {
			t.Errorf("%s: resolv.conf is %+v", mode, line)
		}
	}
	// A host with none needs none.
	delete(tree, "/etc/resolv.conf")
	if p := mustResolve(t, userNetwork(), Request{}, m); len(p.Notices) != 0 {
		t.Errorf("notices are %v", p.Notices)
	}
}

// L5: variables lead to the proxy where there is no other way, in every command.
func TestProxyVariables(t *testing.T) {
	m := machine()
	value := func(p *plan.Plan, name string) string {
		for _, v := range p.Env {
			if v.Name == name {
				return v.Value
			}
		}
		return ""
	}
	p := mustResolve(t, userNetwork(policy.Set("network.link", "proxy"), policy.WithEnv("ALL_PROXY", "mine")), Request{}, m)
	for name, want := range map[string]string{
		"http_proxy": "http://127.0.0.1:3128", "HTTP_PROXY": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://127.0.0.1:3128", "all_proxy": "http://127.0.0.1:3128",
		"no_proxy": "localhost,127.0.0.1,::1,.localhost", "ALL_PROXY": "mine", "NODE_USE_ENV_PROXY": "1",
	} {
		if got := value(p, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	layout, err := ResolveLayout(userNetwork(policy.Set("network.link", "proxy")), Request{Workspace: m.Cwd}, m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := layout.Command(Request{Name: "true"}, m, []policy.EnvSet{{Name: "X", Value: "1"}})
	if err != nil || value(again, "https_proxy") == "" || value(again, "X") != "1" {
		t.Errorf("in a layout: %v, %v", again, err)
	}
	m.Networking.TUN.Outcome = host.Yes
	if p := mustResolve(t, userNetwork(), Request{}, m); value(p, "http_proxy") != "" {
		t.Error("with a TUN device there are proxy variables")
	}
}

// An empty list allows nothing, and a notice says so.
func TestEmptyAllowIsTold(t *testing.T) {
	p := mustResolve(t, workspacePolicy().With(policy.WithNetwork(policy.NetworkUser)), Request{}, machine())
	if len(p.Notices) != 1 || !strings.Contains(p.Notices[0].Text, "--allow") {
		t.Errorf("notices are %v", p.Notices)
	}
}
