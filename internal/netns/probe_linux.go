package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/policy"
)

// tunDevice is opened to make a TUN device.
const tunDevice = "/dev/net/tun"

// ProbeTUN makes a TUN device in a new namespace, as the current user, and deletes it.
// If the user cannot open the device, it returns at once.
func ProbeTUN(ctx context.Context) host.Probe {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return refusedTUN(err)
	}
	unix.Close(fd)
	return probe(ctx, policy.LinkTUN, refusedTUN)
}

// ProbeVeth makes a veth pair in a new namespace, and deletes it.
func ProbeVeth(ctx context.Context) host.Probe {
	return probe(ctx, policy.LinkVeth, refusedVeth)
}

func refusedTUN(err error) host.Probe {
	p := host.Probe{Outcome: host.No, Cause: cause.Missing, Reason: fmt.Sprintf("%s: %v", tunDevice, err)}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		p.Fix = "load the kernel module tun; in a container, pass the device " + tunDevice + " in"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		p.Fix = "let this user open " + tunDevice + " (most systems give it the mode 0666)"
	default:
		return host.Probe{Reason: p.Reason}
	}
	return p
}

func refusedVeth(err error) host.Probe {
	p := host.Probe{Outcome: host.No, Cause: cause.Missing, Reason: err.Error()}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ENODEV):
		p.Fix = "load the kernel modules veth and af_packet"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		p.Cause = cause.UserNS
	default:
		return host.Probe{Reason: p.Reason}
	}
	return p
}

// probe makes a link in a temporary namespace. If the namespace cannot be made, the
// outcome is unknown: other probes explain why.
func probe(ctx context.Context, kind policy.Link, refused func(error) host.Probe) host.Probe {
	var made error
	err := inTrial(ctx, func(n *Namespace) {
		var l *Link
		if l, made = n.MakeLink(kind, trialConfig()); made == nil {
			made = l.Close()
		}
	})
	switch {
	case err != nil:
		return host.Probe{Reason: err.Error()}
	case made != nil:
		return refused(made)
	}
	return host.Probe{Outcome: host.Yes}
}

func trialConfig() LinkConfig {
	return LinkConfig{
		Name: "cloche0", MTU: 1500,
		Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, 2}), 15)},
		Gateways:  []netip.Addr{netip.AddrFrom4([4]byte{198, 18, 0, 1})},
	}
}

// inTrial calls f with a new namespace, and deletes the namespace afterwards.
func inTrial(ctx context.Context, f func(*Namespace)) error {
	p := &sysprog.Program{}
	p.For(policy.Origin{}, "wait for the probe").SyncParent()
	p.For(policy.Origin{}, "end").Exit(0)
	return runAndWait(ctx, p, sysprog.Options{
		CloneFlags: sysprog.NewUser | sysprog.NewNetwork,
		SyncParent: func(c *sysprog.Child) error {
			file, err := os.Open(proc(c.Pid, "ns/net"))
			if err != nil {
				return err
			}
			defer file.Close()
			n, err := Open(file)
			if err != nil {
				return err
			}
			defer n.Close()
			f(n)
			return nil
		},
	})
}
