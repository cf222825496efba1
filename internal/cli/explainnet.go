package cli

import (
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// networkTable is what can be reached, and how.
func networkTable(n *plan.Network) *table {
	t := &table{}
	t.add(n.Mode.String(), modeCell(n), n.Origin.String())
	if n.Mode == policy.NetworkUser {
		t.add("link", n.Link.String(), n.LinkOrigin.String(), n.LinkReason)
	}
	for _, h := range n.Allow {
		t.add("allow", h.String(), h.Origin.String(), h.Reason)
	}
	for _, h := range n.Deny {
		t.add("deny", h.String(), h.Origin.String(), h.Reason)
	}
	for _, p := range n.Publish {
		t.add("publish", publishCell(p), p.Origin.String())
	}
	for _, p := range n.Forward {
		t.add("forward", forwardCell(p), p.Origin.String())
	}
	return t
}

// modeCell says what a mode means.
func modeCell(n *plan.Network) string {
	switch n.Mode {
	case policy.NetworkNone, policy.NetworkLoopback:
		return "nothing outside"
	case policy.NetworkUser:
		if len(n.Allow) == 0 {
			return "nothing is allowed"
		}
		return "what is allowed, and nothing else"
	case policy.NetworkHost:
		return "all that the host reaches, and the host itself"
	}
	return ""
}

// publishCell is where the host listens and where that leads.
func publishCell(p plan.Port) string {
	address := p.Address
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	port := strconv.Itoa(p.Host)
	if p.Host == 0 {
		port = "any free port"
	}
	return address + ":" + port + " leads to " + string(p.Protocol) + " " + strconv.Itoa(p.Inside) + " inside"
}

func forwardCell(p plan.Port) string {
	return string(p.Protocol) + " " + strconv.Itoa(p.Inside) + " inside leads to the host's " + p.Address + ":" + strconv.Itoa(p.Host)
}
