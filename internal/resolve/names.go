package resolve

import (
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// This file decides how names are resolved inside: the files for that and, with a proxy, the
// variables.

const defaultHosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// hosts replaces /etc/hosts, which would reveal names of the host's network, unless the policy
// uses the host's network.
func (b *builder) hosts() {
	text, origin := b.policy.Hosts, b.policy.HostsOrigin
	if text == "" {
		if b.policy.Network.Mode == policy.NetworkHost {
			return
		}
		text, origin = defaultHosts+b.ownName(), builtin("minimal /etc/hosts")
	}
	b.textFile("/etc/hosts", text, origin)
}

// ownName returns the line for the machine's own name, which programs look up. It has its own
// loopback address, so that the name can also be found from the address.
func (b *builder) ownName() string {
	name, ok := judge.NormalName(b.snap.Networking.Hostname)
	if !ok || name == "localhost" {
		return ""
	}
	if short, _, dotted := strings.Cut(name, "."); dotted {
		name += " " + short
	}
	return "127.0.1.1\t" + name + "\n"
}

// resolver makes the C library, musl, Go, Node and others ask the sandbox's own name server. A
// machine without these files needs none inside: without resolv.conf they all ask 127.0.0.1.
func (b *builder) resolver() {
	if b.policy.Network.Mode != policy.NetworkUser {
		return
	}
	server := strings.TrimSuffix(wellknown.DNSAddress, ":53")
	why := builtin("the name server of the user-mode network")
	// There are no search domains: names meant for inside would be asked for outside. EDNS
	// carries the reasons of denials.
	b.textFile("/etc/resolv.conf", "nameserver "+server+"\noptions edns0 timeout:5 attempts:2\n", why)
	b.textFile("/etc/nsswitch.conf", nameService(b.snap.Networking.NameService), why)
}

// textFile shows a text in place of a file of the host, at the file's real path. If the host
// has no such file, there is none inside.
func (b *builder) textFile(p, text string, origin policy.Origin) {
	real, err := b.follow(p)
	if err != nil || real.info.Kind != hostfs.File {
		return
	}
	b.add(candidate{Path: plan.Path{Path: real.path, Kind: hostfs.File, Access: policy.Read, Content: plan.Text, Text: text, Origin: origin}})
}

// nameService returns the host's /etc/nsswitch.conf, changed so that hosts are only looked up
// in /etc/hosts and DNS. Other sources (mDNS, systemd-resolved, LDAP) cannot be reached, and
// waiting for them takes time.
func nameService(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.TrimSpace(name) != "hosts" {
			b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	b.WriteString("hosts: files dns\n")
	return b.String()
}

// proxyVariables adds the variables that make programs use the proxy, if the link is proxy.
// Programs disagree about the case of the names and about which of them they read. All
// variables name the HTTP proxy, which can carry every protocol over TCP: programs that do not
// support SOCKS, such as Python's httpx, fail to start with a SOCKS proxy in all_proxy, even
// if they would not use it.
func (b *builder) proxyVariables(vars map[string]plan.Var) {
	if b.policy.Network.Mode != policy.NetworkUser || b.plan.Network.Link != policy.LinkProxy {
		return
	}
	why := builtin("the proxy of the user-mode network")
	set := func(name, value string) {
		for _, n := range []string{name, strings.ToUpper(name)} {
			vars[n] = plan.Var{Name: n, Value: value, Origin: why}
		}
	}
	for _, name := range []string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy"} {
		set(name, "http://"+wellknown.ProxyAddress)
	}
	// Connections inside need no proxy.
	set("no_proxy", "localhost,127.0.0.1,::1,.localhost")
	// Node's own clients use the variables only with this setting (from 22.21 and 24 on).
	vars["NODE_USE_ENV_PROXY"] = plan.Var{Name: "NODE_USE_ENV_PROXY", Value: "1", Origin: why}
}
