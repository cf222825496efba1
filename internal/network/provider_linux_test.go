package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

var providers = []policy.Link{policy.LinkPasta, policy.LinkSlirp}

// hostAddress4 is an address of this machine that is not its loopback.
func hostAddress4(t *testing.T) netip.Addr {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Skip("this machine has no address of IPv4")
	return netip.Addr{}
}

func attach(t *testing.T, s *sandboxNet, link policy.Link) {
	t.Helper()
	testenv.Need(t, "tun", link.String())
	p, err := startProvider(link, s.file)
	must(t, err)
	t.Cleanup(func() { p.Close() })
}

func canReach(s *sandboxNet, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	c, err := s.DialTCP(ctx, to)
	if err == nil {
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
		_, err = bufio.NewReader(c).ReadString('\n')
	}
	return err
}

// greet answers each connection with one line.
func greet(t *testing.T, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello\n"))
			c.Close()
		}
	}()
}

// L5: pasta and slirp4netns carry packets, and the host's loopback stays closed.
// The servers are there first: pasta can forward what is bound when it starts.
func TestProviders(t *testing.T) {
	for _, link := range providers {
		t.Run(link.String(), func(t *testing.T) {
			address := hostAddress4(t)
			out, port := hostListener(t, net.JoinHostPort(address.String(), "0"))
			greet(t, out)
			l4, port4 := hostListener(t, "127.0.0.1:0")
			greet(t, l4)
			l6, port6 := hostListener(t, "[::1]:0")
			greet(t, l6)
			s := newSandboxNet(t)
			attach(t, s, link)
			if err := canReach(s, netip.AddrPortFrom(address, uint16(port))); err != nil {
				t.Errorf("%v of the host: %v", address, err)
			}
			var all sync.WaitGroup
			for _, to := range []string{"127.0.0.1", "::1", "198.18.0.1", providerGateway4, "198.18.0.3", "198.18.0.100", "10.0.2.2", providerGateway6, "fd00::2"} {
				for _, port := range []int{port4, port6} {
					all.Go(func() {
						if err := canReach(s, netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port))); err == nil {
							t.Errorf("%s leads to the loopback of the host", to)
						}
					})
				}
			}
			all.Wait()
		})
	}
}

// L5: what listens inside cannot be reached on the host.
func TestProvidersForwardNothing(t *testing.T) {
	for _, link := range providers {
		t.Run(link.String(), func(t *testing.T) {
			s := newSandboxNet(t)
			l, err := s.ListenTCP(netip.MustParseAddrPort("0.0.0.0:17111"))
			must(t, err)
			greet(t, l)
			attach(t, s, link)
			time.Sleep(1200 * time.Millisecond) // pasta looks for new listeners once a second, if it does
			if c, err := net.DialTimeout("tcp", "127.0.0.1:17111", 2*time.Second); err == nil {
				c.Close()
				t.Error("what listens inside can be reached on the host")
			}
		})
	}
}

// L5: a provider ends with Close, and nothing is left of it.
func TestProviderClose(t *testing.T) {
	for _, link := range providers {
		t.Run(link.String(), func(t *testing.T) {
			testenv.Need(t, "tun", link.String())
			s := newSandboxNet(t)
			p, err := startProvider(link, s.file)
			must(t, err)
			p.Close()
			if err := syscall.Kill(p.process.Pid, 0); !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("process %d: %v", p.process.Pid, err)
			}
		})
	}
}

// L5: that a provider ended by itself is told; that it was closed is not.
func TestProviderEnds(t *testing.T) {
	for _, link := range providers {
		t.Run(link.String(), func(t *testing.T) {
			testenv.Need(t, "tun", link.String())
			s := newSandboxNet(t)
			told := make(chan string, 1)
			for _, killed := range []bool{false, true} {
				p, err := startProvider(link, s.file)
				must(t, err)
				p.watch(func(text string) { told <- text })
				if killed {
					must(t, p.process.Kill())
					if text := <-told; !strings.Contains(text, link.String()+" ended (signal: killed)") {
						t.Errorf("told %q", text)
					}
				}
				p.Close()
			}
			if len(told) > 0 {
				t.Errorf("told %q", <-told)
			}
		})
	}
}

const helperVariable = "CLOCHE_NETWORK_TEST_PROVIDER"

// TestProviderHelper is no test: it is the program that TestProviderDies kills.
func TestProviderHelper(t *testing.T) {
	name := os.Getenv(helperVariable)
	if name == "" {
		return
	}
	var link policy.Link
	must(t, link.UnmarshalText([]byte(name)))
	netns, err := os.Open(os.Getenv(helperVariable + "_NETNS"))
	must(t, err)
	p, err := startProvider(link, netns)
	must(t, err)
	fmt.Printf("pid %d\n", p.process.Pid)
	time.Sleep(time.Minute)
}

// L5: a provider does not outlive a cloche that is killed.
func TestProviderDies(t *testing.T) {
	for _, link := range providers {
		t.Run(link.String(), func(t *testing.T) {
			testenv.Need(t, "tun", link.String())
			s := newSandboxNet(t)
			helper := exec.Command(os.Args[0], "-test.run=^TestProviderHelper$", "-test.v")
			helper.Env = append(os.Environ(), helperVariable+"="+link.String(), helperVariable+"_NETNS="+fmt.Sprintf("/proc/%d/ns/net", s.pid))
			out, err := helper.StdoutPipe()
			must(t, err)
			must(t, helper.Start())
			pid := 0
			for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
				if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
					pid, _ = strconv.Atoi(text)
				} else {
					t.Log(lines.Text())
				}
			}
			if pid == 0 {
				_ = helper.Wait()
				t.Fatal("the provider was not started")
			}
			must(t, helper.Process.Kill())
			_ = helper.Wait()
			for deadline := time.Now().Add(20 * time.Second); alive(pid); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s is still there as %d", link, pid)
				}
			}
		})
	}
}

// alive reports whether a process is there and no zombie: its new parent may be
// slow to reap it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// L5: a provider that cannot work says why and what to do.
func TestProviderErrors(t *testing.T) {
	s := newSandboxNet(t)
	if os.Getuid() == 0 {
		_, err := startProvider(policy.LinkPasta, s.file, "/usr")
		if err == nil || !strings.Contains(err.Error(), "install it (package passt)") {
			t.Errorf("got %v", err)
		}
	}
	plain, err := os.Open("/dev/null")
	must(t, err)
	defer plain.Close()
	if _, err := startProvider(policy.LinkSlirp, plain); err == nil {
		t.Error("no error for what is no namespace")
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
		f.Close()
		return
	}
	testenv.Need(t, "slirp4netns", "pasta")
	for _, link := range providers {
		if _, err := startProvider(link, s.file); err == nil || !strings.Contains(err.Error(), "/dev/net/tun") {
			t.Errorf("%s: got %v", link, err)
		}
	}
}
