package resolve

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/busaddress"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// bus shows the session bus: the socket of a proxy that filters. The host's own socket is
// never shown, because one call to systemd there starts any program outside.
func (b *builder) bus() {
	p := b.policy.Bus
	if !p.Enabled {
		return
	}
	address, ok := b.busAddress(p.Origin)
	if !ok {
		return
	}
	bus := &plan.Bus{Address: address, Path: wellknown.BusPath, Source: path.Join(b.runtimeDir(), "cloche-bus-*", "bus"), Origin: p.Origin}
	for _, r := range p.Rules {
		bus.Rules = append(bus.Rules, plan.BusRule(r))
		if why := r.Guarded(); why != "" && r.Access != "see" {
			b.notice(plan.NoticeWarning, fmt.Sprintf("bus.%s %s: this name %s", r.Access, r.Name, why), r.Origin)
		}
	}
	b.plan.Bus = bus
	b.put(plan.Path{Path: bus.Path, Source: bus.Source, Kind: hostfs.Socket, Access: policy.Write,
		Reason: "the session bus, filtered by a proxy", Origin: p.Origin})
}

// runtimeDir returns the folder of the user's sockets.
func (b *builder) runtimeDir() string {
	if dir, _ := b.getenv("XDG_RUNTIME_DIR"); path.IsAbs(dir) {
		return path.Clean(dir)
	}
	return "/run/user/" + strconv.Itoa(b.snap.UID)
}

// busAddress finds the host's bus: the first address in the variable's list that can be
// connected to, or the usual socket.
func (b *builder) busAddress(o policy.Origin) (string, bool) {
	list, _ := b.getenv(wellknown.BusVariable)
	addresses := busaddress.Parse(list, b.runtimeDir())
	if len(addresses) == 0 {
		list = "unix:path=" + busaddress.Escape(path.Join(b.runtimeDir(), "bus"))
		addresses = busaddress.Parse(list, "")
	}
	var tried []string
	for _, a := range addresses {
		found, why := b.reachBus(a)
		if why == "" {
			return found.String(), true
		}
		tried = append(tried, why)
	}
	b.fail(&PolicyError{Rule: "bus", Path: list, Origin: o, Reason: "there is no session bus that can be reached: " + strings.Join(tried, "; "),
		Fix: "start the command in a session that has one, or with `dbus-run-session`"})
	return "", false
}

// reachBus resolves one address to its socket, or returns why it cannot be used.
func (b *builder) reachBus(a busaddress.Address) (busaddress.Address, string) {
	if a.Refused != "" || a.Abstract != "" {
		return a, a.Refused
	}
	if !path.IsAbs(a.Path) {
		return a, fmt.Sprintf("%q is relative", a.Path)
	}
	real, err := b.follow(path.Clean(a.Path))
	switch {
	case err != nil:
		return a, err.Error()
	case real.missing():
		return a, a.Path + " does not exist"
	case real.info.Kind != hostfs.Socket:
		return a, a.Path + " is a " + kindName(real.info.Kind) + ", not a socket"
	}
	if l, ok := b.loose(real.links); ok {
		return a, "the link " + l.path + " lies in a folder that the command can write"
	}
	a.Path = real.path
	return a, ""
}
