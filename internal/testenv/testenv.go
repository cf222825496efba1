// Package testenv lets tests declare what they need from the machine. A test that needs
// something the machine lacks is skipped with the reason. It fails instead if the environment
// variable CLOCHE_TEST_EXPECT, a comma-separated list, promises the feature. So a machine that
// is set up for everything cannot silently skip a test.
package testenv

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/machine"
)

// ExpectVariable lists the features that must be present.
const ExpectVariable = "CLOCHE_TEST_EXPECT"

// Need skips the test unless the machine has all of the features. If a missing one is
// promised, it fails the test:
//
//	bwrap     bubblewrap makes sandboxes here
//	overlayfs a user namespace can mount overlayfs in the folder for temporary files
//	userns    user namespaces can be made and used
//	landlock  the kernel has Landlock
//	root      the test runs as root
//	user      an ordinary user: the test runs as one, or is root and can become one
//	qemu      programs of another architecture can be run by qemu-user
//	dbus      a session bus, its filtering proxy and a client (dbus-daemon, xdg-dbus-proxy, dbus-send)
//	grpc      /usr/bin/python3 can speak gRPC
//	tun       this user can open /dev/net/tun
//	postgres  a PostgreSQL server where Debian puts it
//	agents    the coding agents that scripts/agents installs
//
// Any other word is a program that has to be in PATH, such as "gcc" or "git".
func Need(t testing.TB, features ...string) {
	t.Helper()
	for _, f := range features {
		reason := Lacks(f)
		switch {
		case reason == "":
		case expected(os.Getenv(ExpectVariable), f):
			t.Fatalf("%s promises %q, but: %s", ExpectVariable, f, reason)
		default:
			t.Skipf("needs %s: %s", f, reason)
		}
	}
}

// Have reports whether the machine has a feature, for a part of a test. The error is that a promised
// one is missing.
func Have(feature string) (bool, error) {
	reason := Lacks(feature)
	if reason != "" && expected(os.Getenv(ExpectVariable), feature) {
		return false, fmt.Errorf("%s promises %q, but: %s", ExpectVariable, feature, reason)
	}
	return reason == "", nil
}

// expected reports whether the list names the feature.
func expected(list, feature string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool {
		return strings.TrimSpace(s) == feature
	})
}

// known caches the answers, which do not change while tests run.
var known = struct {
	sync.Mutex
	reasons map[string]string
}{reasons: map[string]string{}}

// Lacks returns why the feature is missing, or the empty string.
func Lacks(feature string) string {
	known.Lock()
	defer known.Unlock()
	reason, ok := known.reasons[feature]
	if !ok {
		reason = findOut(feature)
		known.reasons[feature] = reason
	}
	return reason
}

func findOut(feature string) string {
	switch feature {
	case "bwrap":
		return withProbe(func(ctx context.Context, s *host.Snapshot) host.Probe {
			return machine.ProbeBwrap(ctx, s).Probe
		})
	case "userns":
		return withProbe(machine.ProbeUserNS)
	case "overlayfs":
		return lacksOverlayfs()
	case "landlock":
		return lacksLandlock()
	case "root":
		return lacksRoot()
	case "user":
		return lacksUser()
	case "qemu":
		return lacksQemu()
	case "dbus":
		return cmp.Or(lacksProgram("dbus-daemon"), lacksProgram("xdg-dbus-proxy"), lacksProgram("dbus-send"))
	case "grpc":
		return lacksGRPC()
	case "tun":
		return lacksTUN()
	case "postgres":
		return lacksPostgres()
	case "agents":
		return lacksAgents()
	default:
		return lacksProgram(feature)
	}
}

// probeTime limits a probe on a machine that is busy with other tests.
const probeTime = Patience

func withProbe(probe func(context.Context, *host.Snapshot) host.Probe) string {
	s, err := machine.Collect("")
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	if p := probe(ctx, s); p.Outcome != host.Yes {
		return p.Outcome.String() + ": " + p.Reason
	}
	return ""
}

func lacksLandlock() string {
	s, err := machine.Collect("")
	if err != nil {
		return err.Error()
	}
	return s.Landlock.Reason
}

func lacksRoot() string {
	if os.Geteuid() != 0 {
		return "the test does not run as root"
	}
	return ""
}

func lacksProgram(name string) string {
	if _, err := exec.LookPath(name); err != nil {
		return err.Error()
	}
	return ""
}

// lacksOverlayfs mounts one in the way of a review, by other programs than cloche.
func lacksOverlayfs() string {
	dir, err := os.MkdirTemp("", "overlayfs")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	c := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
		"mkdir l u w m && mount -t overlay -o userxattr,lowerdir=l,upperdir=u,workdir=w overlay m && mkdir m/new")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return err.Error() + ": " + strings.TrimSpace(string(out))
	}
	return ""
}

func lacksQemu() string {
	if lacksProgram("qemu-aarch64") == "" || lacksProgram("qemu-aarch64-static") == "" {
		return ""
	}
	return "neither qemu-aarch64 nor qemu-aarch64-static is in PATH"
}

func lacksTUN() string {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	f.Close()
	return ""
}

func lacksGRPC() string {
	if out, err := exec.Command("/usr/bin/python3", "-c", "import grpc").CombinedOutput(); err != nil {
		return "python3-grpcio: " + err.Error() + ": " + strings.TrimSpace(string(out))
	}
	return ""
}

func lacksPostgres() string {
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) == 0 {
		return "there is no /usr/lib/postgresql/*/bin/initdb"
	}
	return ""
}

// AgentsDir is where scripts/agents installs coding agents: in a folder that all users who
// run tests can read.
const AgentsDir = "/var/tmp/cloche-agents"

func lacksAgents() string {
	// Everybody can make such a folder, and tests run what is in it.
	if reason := notOwn(AgentsDir); reason != "" {
		return reason + "; run scripts/agents"
	}
	return lacksProgram("node")
}
