package apitest

import (
	"os"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// L4: the machine's own name is known inside without a network, too; programs look it up
// to learn who they are.
func TestOwnName(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns", "landlock", "getent")
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback} {
		dir := workspace(t)
		r, err := open(t, policy.Workspace(dir).With(policy.WithNetwork(mode)), dir).Command(t.Context(), "getent", "hosts", name).Capture()
		if err != nil || r.ExitCode != 0 || !strings.HasPrefix(string(r.Stdout), "127.") {
			t.Errorf("%s: %v: %+v", mode, err, r)
		}
	}
}

// N1: without a network, a name that is looked up does not exist, at once, and is on
// record with the option or the preset that allows it.
func TestNamesWithoutNetwork(t *testing.T) {
	testenv.AlsoAsUser(t)
	for backend, needs := range map[string][]string{"native": {"userns", "landlock"}, "bwrap": {"bwrap", "userns", "landlock"}} {
		for kind, options := range map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}} {
			t.Run(backend+"/"+kind, func(t *testing.T) {
				testenv.Need(t, append(needs, "getent", "python3")...)
				dir := workspace(t)
				s := open(t, policy.Workspace(dir).With(policy.WithBackend(backend)), dir, options...)
				for _, name := range []string{"registry.npmjs.org", "looked-up.example"} {
					r, err := s.Command(t.Context(), "getent", "hosts", name).Capture()
					if r == nil || r.ExitCode != 2 { // not found, and not "try again"
						t.Fatalf("%s: %v %v", name, r, err)
					}
					var got []plan.Denial
					for _, d := range r.Denied {
						if d.Op == plan.OpResolve {
							got = append(got, d)
						}
					}
					if len(got) != 1 || got[0].Host != name || got[0].Program != "getent" || runoption.Text(got[0].Fix...) != "--allow "+name {
						t.Errorf("%s: on record %+v", name, r.Denied)
					}
					if lines := strings.Join(r.DeniedLines(""), "\n"); !strings.Contains(lines, map[string]string{"registry.npmjs.org": "--preset node", "looked-up.example": "--allow looked-up.example"}[name]) {
						t.Errorf("said is %s", lines)
					}
				}
				// The error is the one of a name that does not exist, for other resolvers too.
				r, err := s.Command(t.Context(), "python3", "-c", `
import socket
try:
    socket.getaddrinfo("other.example", 443)
except socket.gaierror as e:
    print(e.errno == socket.EAI_NONAME or e.errno == getattr(socket, "EAI_NODATA", 0), e)
with socket.socket() as s: # the address of the name server is no way out
    s.settimeout(5)
    for line in open("/etc/resolv.conf"):
        if line.startswith("nameserver"):
            print(s.connect_ex((line.split()[1], 80)) != 0)
`).Capture()
				if err != nil || r == nil || strings.Contains(string(r.Stdout), "False") || !strings.Contains(string(r.Stdout), "True") {
					t.Errorf("%v: %s%s", err, r.Stdout, r.Stderr)
				}
			})
		}
	}
}
