package cloche_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// ownAddress is an address of this machine that is not its loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	t.Skip("needs an address of IPv4 besides the loopback's")
	return ""
}

func eachProvider(t *testing.T, test func(*testing.T, policy.Policy, string)) {
	for _, link := range []policy.Link{policy.LinkPasta, policy.LinkSlirp} {
		for _, name := range []string{"native", "bwrap"} {
			t.Run(link.String()+" "+name, func(t *testing.T) {
				testenv.Need(t, "tun", link.String(), "userns", "curl")
				if name == "bwrap" {
					testenv.Need(t, "bwrap")
				}
				dir := workspace(t)
				test(t, policy.Workspace(dir).With(policy.WithBackend(name), policy.WithNetwork(policy.NetworkUser), policy.WithLink(link), policy.AllowHosts("*")), dir)
			})
		}
	}
}

// L5: with another program as the link the command reaches the network and not the
// host's loopback; ports are carried by cloche.
func TestProviderLinks(t *testing.T) {
	address := ownAddress(t)
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "outside") })}}
	server.Start()
	t.Cleanup(server.Close)
	forwarded, closed := webServer(t), webServer(t)
	eachProvider(t, func(t *testing.T, p policy.Policy, dir string) {
		p = p.With(policy.WithRequire(policy.BestEffort), policy.ForwardPorts(fmt.Sprint(forwarded)))
		if r := capture(t, open(t, p, dir, cloche.Warm()), "curl -sS -m 20 "+server.URL); string(r.Stdout) != "outside\n" {
			t.Errorf("in a warm session: got %q, %s", r.Stdout, r.Stderr)
		}
		s := open(t, p, dir)
		r := capture(t, s, fmt.Sprintf("for u in %s http://127.0.0.1:%d http://127.0.0.1:%d http://198.18.0.2:%d; do curl -sS -m 2 $u || echo none; done", server.URL, forwarded, closed, closed))
		if got := string(r.Stdout); got != "outside\nhello\nnone\nnone\n" {
			t.Errorf("got %q, %s", got, r.Stderr)
		}
		if !slices.ContainsFunc(r.Gaps, func(g backend.Gap) bool { return g.Rule == "network.private" }) {
			t.Errorf("gaps are %v", r.Gaps)
		}
		if len(r.Connections) != 1 || r.Connections[0].Direction != "forward" {
			t.Errorf("connections are %+v", r.Connections)
		}
	})
}

// L5: what a provider does not hold is a gap, with which a strict policy does not run.
func TestProviderGaps(t *testing.T) {
	eachProvider(t, func(t *testing.T, p policy.Policy, dir string) {
		for _, deny := range []policy.Option{policy.DenyHosts("evil.example"), policy.DenyHosts()} {
			err := open(t, p.With(deny), dir, cloche.Deferred()).Command(t.Context(), "touch", "ran").Run()
			var gaps *cloche.GapError
			if !errors.As(err, &gaps) {
				t.Errorf("the error is %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("the command ran")
			}
		}
	})
}

// L5: that the provider ended is told with the result.
func TestProviderKilled(t *testing.T) {
	eachProvider(t, func(t *testing.T, p policy.Policy, dir string) {
		s := open(t, p.With(policy.WithRequire(policy.BestEffort)), dir)
		c := s.Command(t.Context(), "sleep", "1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid := childNamed(t, p.Network.Link.String())
		if err := exec.Command("kill", "-9", strconv.Itoa(pid)).Run(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(c.Result().Notices, func(n plan.Notice) bool {
			return n.Kind == plan.NoticeNetwork && strings.Contains(n.Text, "had no network from then on")
		}) {
			t.Errorf("notices are %+v", c.Result().Notices)
		}
	})
}

// childNamed is the process of this one that runs a program.
func childNamed(t *testing.T, name string) int {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		fields := strings.Fields(string(stat))
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if len(fields) > 3 && fields[3] == strconv.Itoa(os.Getpid()) && strings.HasPrefix(string(line), name+"\x00") {
			pid, _ := strconv.Atoi(fields[0])
			return pid
		}
	}
	t.Fatalf("%s does not run", name)
	return 0
}
