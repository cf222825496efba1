package engine

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// reserveBus reserves a socket for the proxy of a plan's session bus, and returns the plan
// with the socket's path. The proxy is nil if the plan has no bus.
func (e *Engine) reserveBus(p *plan.Plan, environ []string) (*plan.Plan, *bus.Proxy, error) {
	if p.Bus == nil {
		return p, nil, nil
	}
	proxy, err := bus.Reserve(e.busFolders(p, environ)...)
	if err != nil {
		return nil, nil, err
	}
	return p.WithBusAt(proxy.Socket()), proxy, nil
}

// busFolders returns the folders in which the proxy's socket may be until the sandbox is made.
// It leaves out folders that a command can write: a command could replace the socket there.
func (e *Engine) busFolders(p *plan.Plan, environ []string) []string {
	if environ == nil {
		environ = e.config.Environ()
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

// startBus starts the proxy, if there is one.
func (e *Engine) startBus(ctx context.Context, proxy *bus.Proxy, p *plan.Plan) error {
	if proxy == nil {
		return nil
	}
	program := machine.FindProgram(bus.Program, append(p.Writable(), e.config.Workspace)...)
	if program == "" {
		return bus.Missing()
	}
	return proxy.Start(ctx, program, p.Bus)
}

// endBus closes the command's proxy.
func (p *Prepared) endBus() {
	p.bus.Close()
	p.bus = nil
}

// wrapBus returns the plan of a wrapped command with the proxy that all wrapped commands of the
// session share, because only the caller knows whether and when each is started. Socket and
// folder stay until the session is closed.
func (e *Engine) wrapBus(p *plan.Plan, chosen Choice, snap *host.Snapshot) (*plan.Plan, error) {
	if p.Bus == nil || !chosen.mounts() {
		return p, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	old := e.buses[p.Bus.Address]
	if old.Alive() {
		return p.WithBusAt(old.Socket()), nil
	}
	old.Close()
	p, proxy, err := e.reserveBus(p, snap.Environ)
	if err != nil {
		return nil, err
	}
	if err := e.startBus(context.Background(), proxy, p); err != nil {
		proxy.Close()
		return nil, err
	}
	if e.buses == nil {
		e.buses = map[string]*bus.Proxy{}
	}
	e.buses[p.Bus.Address] = proxy
	return p, nil
}

// closeBuses closes the proxies of wrapped commands. The caller holds the lock.
func (e *Engine) closeBuses() {
	for _, proxy := range e.buses {
		proxy.Close()
	}
	e.buses = nil
}
