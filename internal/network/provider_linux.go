package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const (
	// providerTimeout is how long a provider may take until the interface is up.
	providerTimeout = 10 * time.Second
	// maxProviderWords bounds what is kept of its messages.
	maxProviderWords = 2 << 10
)

// A provider is a running program that carries the sandbox's packets in place of
// cloche: pasta or slirp4netns. It judges nothing, so it is used only where the
// policy names it. The host's loopback is closed to it, and it forwards no ports.
type provider struct {
	name    string
	process *os.Process
	// lifeline is closed when this process ends, however it does; slirp4netns
	// watches the other end. pasta has no such option and gets the death signal.
	lifeline *os.File
	ready    chan struct{}
	setReady func()
	done     chan struct{}
	closing  atomic.Bool
	words    *tail
	err      error // why it ended, once done is closed
}

// startProvider attaches a program to a network namespace and returns when the
// interface is up. No program is taken from the folders of avoid.
func startProvider(link policy.Link, netns *os.File, avoid ...string) (*provider, error) {
	name := link.String()
	path := host.FindProgram(name, avoid...)
	if path == "" {
		return nil, fmt.Errorf("network.link: %s: the program was not found in PATH or the system folders, where it has to belong to root; "+
			"install it (package %s), or leave the link to cloche: network.link: auto", name, packageOf(link))
	}
	users, err := ownerOf(netns)
	if err != nil {
		return nil, fmt.Errorf("network.link: %s: %w", name, err)
	}
	if users != nil {
		defer users.Close()
	}
	p := &provider{name: name, ready: make(chan struct{}), done: make(chan struct{}), words: &tail{}}
	p.setReady = sync.OnceFunc(func() { close(p.ready) })
	if err := p.start(link, path, netns, users); err != nil {
		return nil, fmt.Errorf("network.link: %s: %w", name, err)
	}
	if err := p.wait(); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("network.link: %s (%s): %w", name, path, err)
	}
	return p, nil
}

func packageOf(link policy.Link) string {
	if link == policy.LinkPasta {
		return "passt"
	}
	return link.String()
}

// ownerOf opens the user namespace that owns a network namespace, or returns nil
// if that is our own: it cannot and need not be joined.
func ownerOf(netns *os.File) (*os.File, error) {
	fd, err := unix.IoctlRetInt(int(netns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return nil, fmt.Errorf("the owner of the network namespace: %w", err)
	}
	users := os.NewFile(uintptr(fd), "user namespace")
	theirs, err := users.Stat()
	own, ownErr := os.Stat("/proc/self/ns/user")
	if err := errors.Join(err, ownErr); err != nil || os.SameFile(theirs, own) {
		users.Close()
		return nil, err
	}
	return users, nil
}

// start starts the program. Its environment is empty, so that no variable acts
// outside of the sandbox.
func (p *provider) start(link policy.Link, path string, netns, users *os.File) error {
	words, wordsEnd, err1 := os.Pipe()
	ready, readyEnd, err2 := os.Pipe()
	watched, lifeline, err3 := os.Pipe()
	defer closeAll(wordsEnd, readyEnd, watched)
	err := errors.Join(err1, err2, err3)
	if err == nil {
		argv, files := pastaCommand(netns, users, wordsEnd)
		if link == policy.LinkSlirp {
			argv, files = slirpCommand(netns, users, wordsEnd, readyEnd, watched)
		}
		p.process, err = startDying(path, argv, files)
	}
	if err != nil {
		closeAll(words, ready, lifeline)
		return err
	}
	p.lifeline = lifeline
	go p.listen(words)
	go p.await(ready)
	go p.reap()
	return nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// The addresses inside; see plan.ProviderNet. slirp4netns derives its own from
// the network: the second is the gateway, the third the name server.
const (
	providerAddress4 = "198.18.0.100"
	providerGateway4 = "198.18.0.2"
	providerAddress6 = "fd63:6c6f:6368::64"
	providerGateway6 = "fd63:6c6f:6368::2"
)

// pastaCommand has the namespaces as descriptors 0 and 1: newer versions close all
// but the first three before they look at anything, and once pasta has joined
// the user namespace it cannot reach ours by /proc. The process id, which it
// writes once the interface is up, comes with its messages.
func pastaCommand(netns, users, words *os.File) (argv []string, files []*os.File) {
	argv = []string{
		"pasta", "--foreground", "--quiet", "--config-net", "--no-netns-quit",
		"--no-map-gw", "--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
		"--no-dhcp", "--no-dhcpv6", "--no-ra", "--ns-ifname", plan.Interface,
		"--address", providerAddress4, "--netmask", "24", "--gateway", providerGateway4,
		"--address", providerAddress6, "--gateway", providerGateway6,
		"--dns-forward", plan.ProviderDNS, "--pid", "/proc/self/fd/2", "--netns", "/proc/self/fd/0",
	}
	if os.Getuid() == 0 {
		// It would become another user, which takes the death signal away. As root
		// it joins the user namespace of the sandbox, where it has no more rights.
		argv = append(argv, "--runas", "0")
	}
	if users == nil {
		return append(argv, "--netns-only"), []*os.File{netns, nil, words}
	}
	return append(argv, "--userns", "/proc/self/fd/1"), []*os.File{netns, users, words}
}

// slirpCommand leaves IPv6 out, as slirp4netns does by itself: it calls it
// experimental, and it would come with a network that may be the host's.
func slirpCommand(netns, users, words, ready, watched *os.File) (argv []string, files []*os.File) {
	argv = []string{
		"slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp",
		"--cidr=" + plan.ProviderNet, "--ready-fd=3", "--exit-fd=4", "--netns-type=path",
	}
	files = []*os.File{nil, words, words, ready, watched, netns}
	if os.Getuid() == 0 {
		// It becomes root of the user namespace for that, where an ordinary user's
		// sandbox has none.
		argv = append(argv, "--enable-sandbox")
	}
	if users != nil {
		argv, files = append(argv, "--userns-path=/proc/self/fd/6"), append(files, users)
	}
	return append(argv, "/proc/self/fd/5", plan.Interface), files
}

// listen keeps what the program says. pasta is ready when it writes its number.
func (p *provider) listen(words *os.File) {
	defer words.Close()
	mark := strconv.Itoa(p.process.Pid)
	for lines := bufio.NewScanner(words); lines.Scan(); {
		if lines.Text() == mark {
			p.setReady()
		} else {
			p.words.add(lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, words) // a line that is too long: it must not wait for us
}

// await waits for the byte that slirp4netns writes when it is ready.
func (p *provider) await(ready *os.File) {
	defer ready.Close()
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		p.setReady()
	}
}

func (p *provider) reap() {
	state, err := p.process.Wait()
	if err == nil {
		err = errors.New(state.String())
	}
	p.err = err
	close(p.done)
}

// wait waits until the interface is up.
func (p *provider) wait() error {
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return fmt.Errorf("it ended before the network was up (%w)%s; %s", p.err, p.said(), p.fix())
	case <-time.After(providerTimeout):
		return fmt.Errorf("the network was not up after %v%s", providerTimeout, p.said())
	}
}

func (p *provider) said() string {
	if text := strings.TrimSpace(p.words.String()); text != "" {
		return ": " + strings.Join(strings.Fields(text), " ")
	}
	return ""
}

// fix is what helps against the usual reasons.
func (p *provider) fix() string {
	const auto = "leave the link to cloche: network.link: auto"
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Sprintf("it needs /dev/net/tun, which this user cannot open (%v); %s", err, auto)
	}
	f.Close()
	if text := p.words.String(); strings.Contains(text, "unrecognized option") || strings.Contains(text, "unknown option") {
		return "this version is too old: pasta of 2023 or slirp4netns 1.0 is needed; or " + auto
	}
	return auto
}

// watch tells if the program ends before it is ended: the command goes on, without
// a network.
func (p *provider) watch(notice func(string)) {
	if notice == nil {
		return
	}
	go func() {
		<-p.done
		if !p.closing.Load() {
			notice(fmt.Sprintf("%s ended (%v)%s: the command had no network from then on", p.name, p.err, p.said()))
		}
	}()
}

// Close ends the program and waits for it.
func (p *provider) Close() error {
	p.closing.Store(true)
	p.lifeline.Close()
	_ = p.process.Kill()
	<-p.done
	return nil
}

// permanent runs functions on a thread that never ends: the kernel sends the
// death signal when the thread that started a process ends, and the Go runtime
// ends threads whenever it likes.
var permanent = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// startDying starts a program that is killed when this one ends.
func startDying(path string, argv []string, files []*os.File) (process *os.Process, err error) {
	done := make(chan struct{})
	permanent() <- func() {
		defer close(done)
		process, err = os.StartProcess(path, argv, &os.ProcAttr{
			Dir: "/", Env: []string{}, Files: closeOthers(files),
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	<-done
	return process, err
}

// closeOthers adds a nil, which is closed in the child, for each descriptor that
// this process holds without close-on-exec: programs that we share it with may
// have such.
func closeOthers(files []*os.File) []*os.File {
	entries, _ := os.ReadDir("/proc/self/fd")
	last := len(files) - 1
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			last = max(last, fd)
		}
	}
	return append(files, make([]*os.File, last+1-len(files))...)
}

// A tail keeps the first words of a program, which say why it could not start,
// and the last ones, which say why it ended.
type tail struct {
	mu          sync.Mutex
	first, last string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line = line[:min(len(line), maxProviderWords/2)] + "\n"
	if t.last == "" && len(t.first)+len(line) <= maxProviderWords {
		t.first += line
		return
	}
	t.last += line
	t.last = t.last[max(0, len(t.last)-maxProviderWords):]
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first + t.last
}
