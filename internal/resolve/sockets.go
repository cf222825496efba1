package resolve

import (
	"fmt"
	"slices"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// grantSockets shows the sockets that the policy names, each exactly.
func (b *builder) grantSockets() {
	for _, s := range b.policy.Sockets {
		switch {
		case s.Path == policy.SSHAgent:
			b.grantSSHAgent(s)
			continue
		case s.Agent():
			b.grantGPGAgent(s)
			continue
		case s.Abstract():
			b.grantAbstract(s)
			continue
		case s.Datagrams():
			b.grantDatagrams(s)
			continue
		}
		real, ok := b.expandReal("sockets", s.Path, s.Origin)
		if !ok {
			continue
		}
		if real.info.Kind != hostfs.Socket {
			b.notASocket(s, real)
			continue
		}
		if l, ok := b.loose(real.links); ok {
			b.failLoose("sockets", s.Path, real.path, l, s.Origin)
			continue
		}
		b.plan.Sockets = append(b.plan.Sockets, plan.SocketPath{Path: real.path, Source: real.path, Reason: s.Reason, Origin: s.Origin})
		b.put(plan.Path{Path: real.path, Source: real.path, Kind: hostfs.Socket, Access: policy.Write,
			Written: written(s.Path, real.path), Reason: s.Reason, Origin: s.Origin})
		if _, found := slices.BinarySearch(b.snap.Datagrams, real.path); found {
			b.grantDatagrams(s) // it is used with a datagram socket
		}
	}
}

// grantDatagrams allows unix datagram sockets.
func (b *builder) grantDatagrams(s policy.Socket) {
	if b.plan.Datagrams == nil {
		b.plan.Datagrams = &s.Origin
	}
}

// grantAbstract grants an abstract socket. It does not check whether anything listens there,
// because the name comes and goes with its owner; that shows when the command connects.
func (b *builder) grantAbstract(s policy.Socket) {
	if slices.ContainsFunc(b.plan.Sockets, func(o plan.SocketPath) bool { return o.Path == s.Path }) {
		return
	}
	b.plan.Sockets = append(b.plan.Sockets, plan.SocketPath{Path: s.Path, Source: s.Path, Reason: s.Reason, Origin: s.Origin})
}

// carryAbstract makes the network carry connections to the granted abstract sockets.
func (b *builder) carryAbstract() {
	if b.plan.Network.Mode == policy.NetworkHost {
		return
	}
	for _, s := range b.plan.Sockets {
		if s.Abstract() {
			b.plan.Network.Abstract = append(b.plan.Network.Abstract, s.Source[1:])
		}
	}
}

func (b *builder) notASocket(s policy.Socket, real realPath) {
	if real.missing() && s.Optional {
		b.notice(plan.NoticeSkipped, fmt.Sprintf("sockets %q: no such socket", s.Path), s.Origin)
		return
	}
	e := &PolicyError{Rule: "sockets", Path: s.Path, Reason: "is a " + kindName(real.info.Kind) + ", not a socket", Origin: s.Origin}
	if real.missing() {
		e.Reason, e.Fix = "no such socket", fmt.Sprintf("start what listens there, or write %q if it may be missing", "?"+s.Path)
	}
	b.fail(e)
}

// put sets the line of one path after settle.
func (b *builder) put(line plan.Path) {
	if i := b.lineOf(line.Path); i >= 0 {
		b.plan.Paths[i] = line
		return
	}
	b.plan.Paths = append(b.plan.Paths, line)
}

// hideSockets hides each socket of the host that the plan would show, because a read-only
// mount does not prevent connect.
func (b *builder) hideSockets() {
	tree := b.fs.aside() // servers of all users end while the plan is made
	for _, s := range b.snap.Sockets {
		real, err := tree.follow(s)
		if err != nil || real.info.Kind != hostfs.Socket || b.socketGranted(real.path) {
			continue
		}
		for _, inside := range b.places(real.path) {
			b.put(plan.Path{Path: inside, Kind: hostfs.Socket, Content: plan.Empty, Access: policy.Hidden, Volatile: true,
				Origin: builtin("a socket of the host; grant it with --socket")})
		}
	}
}

// places returns the paths inside at which the plan shows a host path.
func (b *builder) places(real string) []string {
	var out []string
	for _, e := range b.plan.Paths {
		if e.Content != plan.Host || e.Access == policy.Hidden || !pathx.Within(e.Source, real) {
			continue
		}
		inside := pathx.Rebase(e.Source, e.Path, real)
		if back, shown := b.plan.HostPath(inside); shown && back == real && !slices.Contains(out, inside) {
			out = append(out, inside)
		}
	}
	return out
}

func (b *builder) socketGranted(p string) bool {
	return slices.ContainsFunc(b.plan.Sockets, func(g plan.SocketPath) bool { return g.Source == p })
}
