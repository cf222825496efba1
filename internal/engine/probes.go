package engine

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/backends/landlock"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/backends/none"
	"github.com/cloche-dev/cloche/internal/backends/seatbelt"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/policy"
)

// The priorities of the built-in backends.
const (
	priorityNative = 200
	priorityBwrap  = 100
	// Landlock enforces less than the others and reports the gaps. It is used if nothing else
	// works.
	priorityLandlock = 50
	// Seatbelt is the only one on macOS.
	prioritySeatbelt = 40
	priorityNone     = 1
)

// probeTimeout limits a live probe. One that takes longer is inconclusive.
const probeTimeout = 10 * time.Second

// Collect collects the facts about this machine.
func Collect(workspace string) (*host.Snapshot, error) {
	return machine.Collect(workspace)
}

// DefaultRegistry returns a registry with the built-in backends. It remembers the outcomes of
// live probes; those that are "yes" are also kept in cloche's cache folder.
func DefaultRegistry(config policy.Backend) (*backend.Registry, error) {
	return new(prober).registry(config)
}

func (p *prober) registry(config policy.Backend) (*backend.Registry, error) {
	return p.registryFor(runtime.GOOS, config)
}

// registryFor returns the registry for an operating system. It includes backends of other
// systems, so that a user who names one gets the reason why it cannot be used.
func (p *prober) registryFor(system string, config policy.Backend) (*backend.Registry, error) {
	linux, mac := system == "linux", system == "darwin"
	return backend.NewRegistry(
		backend.Entry{Backend: native.New(p.native), Priority: priorityNative, Explicit: !linux,
			Description: "the kernel alone: namespaces, mounts and a seccomp filter"},
		backend.Entry{Backend: bwrap.New(bwrap.Config{Args: config.BwrapArgs}, p.bwrap), Priority: priorityBwrap, Explicit: !linux,
			Description: "bubblewrap: namespaces, mounts and a seccomp filter"},
		backend.Entry{Backend: landlock.New(p.landlock), Priority: priorityLandlock, Explicit: !linux,
			Description: "Landlock and a seccomp filter, where user namespaces are refused"},
		backend.Entry{Backend: seatbelt.New(p.seatbelt), Priority: prioritySeatbelt, Explicit: !mac,
			Description: "the sandbox of macOS, by sandbox-exec"},
		backend.Entry{Backend: none.New(), Priority: priorityNone, Explicit: true, Description: "no sandbox at all"},
	)
}

// A prober probes backends and remembers the outcomes. An outcome that is already in the
// snapshot, for example in one of another machine, is used as it is.
type prober struct {
	// leaveNoFile: outcomes are remembered in this process only.
	leaveNoFile bool
	// refuseBwrap, unless nil, returns why bwrap must not even be probed.
	refuseBwrap func(*host.Snapshot) *host.Probe

	once  sync.Once
	cache *machine.ProbeCache
}

func (p *prober) remembered(s *host.Snapshot) *machine.ProbeCache {
	p.once.Do(func() {
		folder := s.Dirs.Cache
		if p.leaveNoFile {
			folder = ""
		}
		p.cache = machine.NewProbeCache(folder)
	})
	return p.cache
}

// forget drops the remembered outcomes.
func (p *prober) forget(s *host.Snapshot) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	p.remembered(s).Forget(ctx)
}

func (p *prober) bwrap(s *host.Snapshot) host.Bwrap {
	if s.Bwrap.Probe.Outcome != host.Unknown {
		return s.Bwrap
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	return p.remembered(s).Bwrap(ctx, s, p.refuseBwrap)
}

// ask returns the outcome of a backend's probe that needs no program. known is the outcome in
// the snapshot.
func (p *prober) ask(s *host.Snapshot, known host.Probe, name string, probe func(context.Context, *host.Snapshot) host.Probe) host.Probe {
	if known.Outcome != host.Unknown || !s.Live() {
		return known
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	return p.remembered(s).Ask(ctx, s, name, func(ctx context.Context) host.Probe { return probe(ctx, s) })
}

func (p *prober) native(s *host.Snapshot) host.Probe {
	return p.ask(s, s.Native, native.Name, native.Probe)
}

func (p *prober) landlock(s *host.Snapshot) host.Probe {
	return p.ask(s, s.Landlock.Probe, landlock.Name, landlock.Probe)
}

func (p *prober) seatbelt(s *host.Snapshot) host.Probe {
	return p.ask(s, s.Seatbelt, seatbelt.Name, seatbelt.Probe)
}

// networking fills in the facts that a user-mode network depends on. The links are probed only
// if the policy leaves the choice open, and a veth pair only if TUN does not work.
func (p *prober) networking(s *host.Snapshot, link policy.Link) {
	n := &s.Networking
	if !s.Live() {
		return
	}
	if text, err := os.ReadFile("/etc/nsswitch.conf"); err == nil {
		n.NameService = string(text)
	}
	n.Hostname, _ = os.Hostname() // without it, the name is only missing in /etc/hosts
	if link != policy.LinkAuto || n.TUN.Outcome != host.Unknown || n.Veth.Outcome != host.Unknown {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cache := p.remembered(s)
	if n.TUN = cache.Ask(ctx, s, "tun", netns.ProbeTUN); n.TUN.Outcome != host.Yes {
		n.Veth = cache.Ask(ctx, s, "veth", netns.ProbeVeth)
	}
}

// Doctor collects every fact about this machine and runs every live probe.
func Doctor(ctx context.Context, workspace string) (*host.Snapshot, error) {
	s, err := Collect(workspace)
	if err != nil {
		return nil, err
	}
	machine.ProbeAll(ctx, s)
	s.Native = native.Probe(ctx, s)
	s.Landlock.Probe = landlock.Probe(ctx, s)
	if s.OS == "darwin" {
		s.Seatbelt = seatbelt.Probe(ctx, s)
	}
	s.Review = probeReview(ctx, s, workspace)
	s.Networking.TUN, s.Networking.Veth = netns.ProbeTUN(ctx), netns.ProbeVeth(ctx)
	return s, nil
}
