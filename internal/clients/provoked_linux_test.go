package clients

import (
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// provokedHosts are names and addresses of all kinds.
var provokedHosts = []string{
	"good.example", "private.example", "metadata.example", "loopback.example", "machine.example", "mixed.example",
	testnet.Nameless, testnet.Private, testnet.Metadata, testnet.MachineV4, "[2606:2800:220:1::37]",
}

// provokedUses are what is attempted at the host H.
var provokedUses = map[string][]string{
	"get":          {"curl", "-sS", "-f", "-o", "got", "http://H/"},
	"get a path":   {"curl", "-sS", "-f", "-o", "got", "http://H/a/b"},
	"get a query":  {"curl", "-sS", "-f", "-o", "got", "http://H/a?b=c"},
	"post":         {"curl", "-sS", "-f", "-o", "got", "-d", "x", "http://H/a"},
	"through ip":   {"curl", "-sS", "-f", "-o", "got", "--noproxy", "*", "http://H/"},
	"another port": {"SELF", "hear", "H:2525"},
	"udp":          {"SELF", "udp", "H:7", "said"},
}

// provokedFlags are the options of the run that is refused, for a host H.
var provokedFlags = map[string]string{
	"no network":     "",
	"loopback":       "--net loopback",
	"user":           "--net user",
	"another host":   "--allow other.example",
	"another port":   "--allow H:443",
	"another path":   "--allow http://H/only",
	"public":         "--allow *",
	"a rule against": "--net user --deny H",
}

var (
	suggested    = regexp.MustCompile(`allow it with (.+?)(?:, or write a policy|$)`)
	own          = regexp.MustCompile("machine.example|" + testnet.MachineV4)
	nothingHelps = regexp.MustCompile("no option allows it|no single option allows it|to allow it, change ")
)

// N1 C3: of commands that are refused a use of the network, each gets an option that
// lets the same command pass, or that there is none.
func TestProvokedNetworkDenials(t *testing.T) {
	testenv.Need(t, "curl", "landlock")
	if l, err := net.Listen("tcp", testnet.MachineV4+":2525"); err == nil {
		defer l.Close()
		go greet(l)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for i, host := range provokedHosts {
			for j, use := range slices.Sorted(maps.Keys(provokedUses)) {
				for k, flags := range slices.Sorted(maps.Keys(provokedFlags)) {
					if turn := (i + j + k) % 8; turn%4 != 0 || (turn == 0) != (s.backend == "bwrap") { // a quarter of them is enough
						continue
					}
					t.Run(host+"/"+use+"/"+flags, func(t *testing.T) {
						t.Parallel()
						fill := strings.NewReplacer("H", host, "SELF", self)
						var command []string
						for _, word := range provokedUses[use] {
							command = append(command, fill.Replace(word))
						}
						in := s.with("--env", roleVariable+"="+roleClient).with(strings.Fields(fill.Replace(provokedFlags[flags]))...)
						if in.provoke(t, command) {
							n.Add(1)
						}
					})
				}
			}
		}
	})
	if n := n.Load(); n < 100 {
		t.Errorf("only %d commands were refused something", n)
	}
}

// provoke runs a command, and if it is refused something with the options that were printed. A
// name that is refused is not looked up: that it leads to a private address is reported when
// the name is allowed. So it may take several steps, each with an option that is new.
func (s *sandbox) provoke(t *testing.T, command []string) (refused bool) {
	t.Helper()
	for {
		o := s.run(t, command...)
		if o.status == 0 {
			return refused
		}
		var more []string
		said := false
		for line := range strings.Lines(o.stderr) {
			line, ours := strings.CutPrefix(strings.TrimSpace(line), "cloche: denied ")
			if !ours {
				continue
			}
			said = true
			if nothingHelps.MatchString(line) {
				return true
			}
			if m := suggested.FindStringSubmatch(line); m != nil && !strings.Contains(strings.Join(s.flags, " ")+" ", " "+m[1]+" ") {
				more = append(more, strings.Fields(strings.ReplaceAll(m[1], "'", ""))...)
			}
		}
		if !said && own.MatchString(strings.Join(command, " ")) {
			return refused // this machine has no such server
		}
		if len(more) == 0 {
			t.Errorf("%v %v: no line has a new option, or says that there is none\n%s", s.flags, command, o.stderr)
			return true
		}
		s, refused = s.with(more...), true
	}
}

func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(testnet.Greeting))
		_ = c.Close()
	}
}
