package network

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// errOwn keeps the machine's own network from being set up as a sandbox's.
var errOwn = errors.New("the sandbox has no network namespace of its own, so no network is made in it")

// Start makes the network in a namespace, whose file stays the caller's. If it
// fails, nothing of it is left and the ports are given back.
func Start(file *os.File, c Config) (*Running, error) {
	r := &Running{}
	if err := r.start(file, &c); err != nil {
		_ = r.Close() // what failed first is what matters
		return nil, err
	}
	return r, nil
}

func (r *Running) start(file *os.File, c *Config) error {
	inside, err := netns.Open(file)
	if err == nil {
		r.keep(inside)
	}
	if c.Ports != nil {
		r.keep(c.Ports)
	}
	if err != nil {
		return err
	}
	if inside.Own() {
		return errOwn
	}
	if publishesLowPort(c.Network) {
		inside.Prepare(netns.Needs{LowPorts: true})
	}
	if c.Network.Mode == policy.NetworkUser {
		if err := r.connect(inside, c); err != nil {
			return err
		}
	}
	for _, name := range c.Network.Abstract {
		l, err := inside.ListenUnix(name)
		if err != nil {
			return fmt.Errorf("listen on the abstract socket @%s inside: %w", name, err)
		}
		r.keep(carryAbstract(l, name, c.tell))
	}
	if c.Ports == nil {
		return nil
	}
	c.Ports.begun = c.Begun
	return c.Ports.Serve(inside, c.tell)
}

// publishesLowPort reports whether a published port leads to one inside on which only
// privileged programs may listen.
func publishesLowPort(n *plan.Network) bool {
	const firstFree = 1024
	return slices.ContainsFunc(n.Publish, func(p plan.Port) bool { return p.Inside < firstFree })
}

func (c *Config) tell(n plan.Connection) {
	if c.Connection != nil {
		c.Connection(n)
	}
}
