package cloche

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A BusError says why the session bus cannot be shown to a command.
type BusError = bus.Error

// reserveBus makes the place for the proxy of a plan's session bus, and says so
// in the plan, which has just been made. Without a bus there is none.
func (s *Session) reserveBus(p *plan.Plan, environ []string) (*bus.Proxy, error) {
	if p.Bus == nil {
		return nil, nil
	}
	proxy, err := bus.Reserve(s.busFolders(p, environ)...)
	if err != nil {
		return nil, err
	}
	p.PlaceBus(proxy.Socket())
	return proxy, nil
}

// busFolders are where the proxy's socket may lie for a moment: never where a
// command can write, which could put another one there.
func (s *Session) busFolders(p *plan.Plan, environ []string) []string {
	if environ == nil {
		environ = s.opts.environ()
	}
	dir, _ := (&host.Snapshot{Environ: environ}).Getenv("XDG_RUNTIME_DIR")
	var folders []string
	for _, f := range []string{dir, "/run/user/" + strconv.Itoa(os.Getuid()), os.TempDir(), "/tmp"} {
		if !filepath.IsAbs(f) {
			continue
		}
		line := p.Lookup(filepath.Clean(f))
		if writable := line.Content == plan.Host && line.Access == policy.Write; !writable {
			folders = append(folders, f)
		}
	}
	return folders
}

// startBus starts the proxy for a backend that can show its socket.
func (s *Session) startBus(ctx context.Context, proxy *bus.Proxy, p *plan.Plan, backend string) error {
	if proxy == nil || !mounts(backend) {
		return nil
	}
	program := host.FindProgram(bus.Program, append(p.Writable(), s.opts.workspace)...)
	if program == "" {
		return bus.Missing()
	}
	return proxy.Start(ctx, program, p.Bus)
}

// endBus ends the command's proxy.
func (c *Cmd) endBus() {
	c.bus.Close()
	c.bus = nil
}

// wrapBus gives a wrapped command the proxy that all wrapped commands of the
// session share: when one of them is started, and whether, only its caller knows.
// Socket and folder stay until the session is closed.
func (s *Session) wrapBus(p *plan.Plan, snap *host.Snapshot) error {
	if p.Bus == nil {
		return nil
	}
	b, _, err := s.choose(snap)
	if err != nil || !mounts(b.Name()) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	old := s.buses[p.Bus.Address]
	if old.Alive() {
		p.PlaceBus(old.Socket())
		return nil
	}
	old.Close()
	proxy, err := s.reserveBus(p, snap.Environ)
	if err != nil {
		return err
	}
	if err := s.startBus(context.Background(), proxy, p, b.Name()); err != nil {
		proxy.Close()
		return err
	}
	if s.buses == nil {
		s.buses = map[string]*bus.Proxy{}
	}
	s.buses[p.Bus.Address] = proxy
	return nil
}

// closeBuses ends the proxies of wrapped commands. The lock is held.
func (s *Session) closeBuses() {
	for _, proxy := range s.buses {
		proxy.Close()
	}
	s.buses = nil
}
