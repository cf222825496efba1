package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cloche-dev/cloche/internal/netns"
	"github.com/cloche-dev/cloche/internal/network"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A networkLink is a way to give a namespace a network.
type networkLink struct {
	name string
	own  bool
	link policy.Link // of cloche's
}

var networkLinks = []networkLink{
	{name: pastaName},
	{name: slirpName},
	{"cloche, tun", true, policy.LinkTUN},
	{"cloche, veth", true, policy.LinkVeth},
}

// networkWays finds out what can be measured. The server is at an address of
// this machine that is not the loopback: no network of a sandbox leads there.
func (l *lab) networkWays() (networkWays, error) {
	addr, err := ownAddress()
	if err != nil {
		return networkWays{}, err
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		return networkWays{}, err
	}
	var setUp []contender
	for _, n := range networkLinks {
		if n.available(l) {
			setUp = append(setUp, contender{name: n.name, own: n.own, open: n.openSetUp})
		}
	}
	setUp = append(setUp, contender{name: "cloche, proxy", own: true, open: networkLink{own: true, link: policy.LinkProxy}.openSetUp})
	return networkWays{
		setUp:   setUp,
		carry:   func(e netErrand) []contender { return l.carriers(addr, e) },
		proxies: func(e netErrand) []contender { return l.proxies(addr, e) },
	}, nil
}

func (n networkLink) available(l *lab) bool {
	_, found := l.peers[n.name]
	return n.own || found
}

// ownAddress is an address of this machine that others could use.
func ownAddress() (netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, f := range found {
		if prefix, err := netip.ParsePrefix(f.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("this machine has no address but the loopback's")
}

// A place is a network namespace with a process that holds it.
type place struct {
	holder *exec.Cmd
	file   *os.File
}

// newPlace makes a namespace with nothing but a loopback.
func newPlace() (*place, error) {
	cmd := exec.Command("sleep", "1000")
	id := func(n int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: n, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: id(os.Getuid()), GidMappings: id(os.Getgid()), Pdeathsig: syscall.SIGKILL,
	}
	// The death signal is the thread's, so it has to stay.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &place{holder: cmd}
	var err error
	if p.file, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	inside, err := netns.Open(p.file)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, errors.Join(inside.LoopbackUp(), inside.Close())
}

func (p *place) close() error {
	_ = p.holder.Process.Kill()
	_ = p.holder.Wait()
	return p.file.Close()
}

// command is a command that runs in the namespace.
func (p *place) command(argv ...string) command {
	enter := []string{"nsenter", "-t", strconv.Itoa(p.holder.Process.Pid), "-U", "-n", "--preserve-credentials", "--"}
	return command{argv: append(enter, argv...), env: os.Environ()}
}

// start gives the namespace a network in which the server can be reached.
func (p *place) start(n networkLink, server netip.AddrPort) (io.Closer, error) {
	if !n.own {
		return p.startPeer(n.name)
	}
	rules := &plan.Network{Mode: policy.NetworkUser, Link: n.link}
	if server.IsValid() {
		rules.Allow = []plan.HostPort{{Host: server.Addr().String(), Port: int(server.Port())}}
	}
	return network.Start(p.file, network.Config{Network: rules})
}

// openSetUp measures how long it takes until the network is there.
func (n networkLink) openSetUp(context.Context, *lab, job) (*runner, error) {
	sample := func(context.Context) (float64, error) {
		p, err := newPlace()
		if err != nil {
			return 0, err
		}
		start := time.Now()
		running, err := p.start(n, netip.AddrPort{})
		took := time.Since(start)
		if err != nil {
			return 0, errors.Join(err, p.close())
		}
		return took.Seconds(), errors.Join(running.Close(), p.close())
	}
	return &runner{sample: sample, close: func() error { return nil }}, nil
}

// carriers do an errand through each network, and through none.
func (l *lab) carriers(addr netip.Addr, e netErrand) []contender {
	all := []contender{{name: noSandboxName, open: func(context.Context, *lab, job) (*runner, error) {
		server, stop, err := startNetServer(addr)
		if err != nil {
			return nil, err
		}
		return clientRunner(command{env: os.Environ()}, e.to(server, netip.AddrPort{}), stop)
	}}}
	for _, n := range networkLinks {
		if n.available(l) {
			all = append(all, contender{name: n.name, own: n.own, open: n.opener(addr, e, netip.AddrPort{})})
		}
	}
	return all
}

// proxies do an errand through cloche's proxy, and through a bridge of two socats,
// which other sandboxes put in front of theirs. The bridge leads straight to
// the server, with no proxy behind it.
func (l *lab) proxies(addr netip.Addr, e netErrand) []contender {
	own := networkLink{own: true, link: policy.LinkProxy}
	var all []contender
	if p, ok := l.peers["socat"]; ok {
		all = append(all, contender{name: socatName, open: p.socatOpener(addr, e)})
	}
	return append(all, contender{name: "cloche, proxy", own: true, open: own.opener(addr, e, netip.MustParseAddrPort(wellknown.ProxyAddress))})
}

func (e netErrand) to(server, proxy netip.AddrPort) netErrand {
	e.Server, e.Proxy = server, proxy
	return e
}

// opener makes the network and a client in it.
func (n networkLink) opener(addr netip.Addr, e netErrand, proxy netip.AddrPort) func(context.Context, *lab, job) (*runner, error) {
	return func(context.Context, *lab, job) (*runner, error) {
		server, stop, err := startNetServer(addr)
		if err != nil {
			return nil, err
		}
		p, err := newPlace()
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		running, err := p.start(n, server)
		if err != nil {
			return nil, errors.Join(err, p.close(), stop())
		}
		return clientRunner(p.command(), e.to(server, proxy), func() error {
			return errors.Join(running.Close(), p.close(), stop())
		})
	}
}

// socatOpener makes the bridge and a client before it.
func (p peer) socatOpener(addr netip.Addr, e netErrand) func(context.Context, *lab, job) (*runner, error) {
	return func(ctx context.Context, _ *lab, j job) (*runner, error) {
		server, stop, err := startNetServer(addr)
		if err != nil {
			return nil, err
		}
		at, err := newPlace()
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		path := filepath.Join(j.Workspace, fmt.Sprintf("bridge-%d", server.Port()))
		entrance := netip.MustParseAddrPort(wellknown.ProxyAddress)
		outer := command{argv: []string{p.path, "UNIX-LISTEN:" + path + ",fork", "TCP:" + server.String()}, env: os.Environ()}
		inner := at.command(p.path, fmt.Sprintf("TCP-LISTEN:%d,fork,reuseaddr,bind=%s", entrance.Port(), entrance.Addr()), "UNIX-CONNECT:"+path)
		stopBoth, err := startBoth(ctx, outer, inner)
		end := func() error { return errors.Join(stopBoth(), at.close(), stop()) }
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return clientRunner(at.command(), e.to(entrance, netip.AddrPort{}), end)
	}
}

// startBoth starts two programs that listen, and gives them time to.
func startBoth(ctx context.Context, commands ...command) (stop func() error, err error) {
	var started []*exec.Cmd
	for _, c := range commands {
		cmd := c.cmd(ctx)
		if err = cmd.Start(); err != nil {
			break
		}
		started = append(started, cmd)
	}
	time.Sleep(300 * time.Millisecond)
	return func() error {
		for _, cmd := range started {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
		return nil
	}, err
}

// startNetServer serves errands at the address.
func startNetServer(addr netip.Addr) (server netip.AddrPort, stop func() error, err error) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return server, nil, err
	}
	go serveNet(l)
	return netip.MustParseAddrPort(l.Addr().String()), l.Close, nil
}

// clientRunner samples what a client says that runs behind the command's words.
func clientRunner(in command, e netErrand, stop func() error) (*runner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	in.argv = append(append(in.argv, self), e.args()...)
	sample := func(ctx context.Context) (float64, error) {
		cmd := in.cmd(ctx)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, lastLines(stderr.String(), 2))
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	}
	return &runner{sample: sample, process: in, close: stop}, nil
}
