package native_test

import (
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/seccomp"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// An unfiltered backend lets the command make namespaces, and mounts as far as its filter goes.
type unfiltered struct{ leaky }

func (b unfiltered) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	l, err := b.leaky.Backend.Compile(p, b.snapshot(s))
	if err != nil {
		return nil, err
	}
	filter, err := seccomp.Filter(seccomp.Options{AllowNamespaces: true, Notify: program.Notified(l.Guard)})
	for _, step := range l.Program.Steps {
		for i := range step.Args {
			if step.Args[i].Kind == sysprog.KindFilter {
				step.Args[i].Text = string(filter)
			}
		}
	}
	return l, err
}

// W3: even with capabilities in a namespace of its own, which the filter refuses, a command makes
// and changes no mount: Landlock alone refuses it. Without Landlock both succeed.
func TestLandlockRefusesMounts(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "python3")
	testenv.AlsoAsUser(t)
	const script = `exec python3 -c '
import ctypes
libc = ctypes.CDLL(None)
print(libc.unshare(0x10020000), libc.mount(None, b"/", None, 0x84000, None), libc.mount(b"/usr", b"/mnt", None, 0x1000, None))'`
	for bare, want := range map[bool]string{false: "0 -1 -1\n", true: "0 0 0\n"} {
		r := shell(t, unfiltered{leaky{newBackend(), bare}}, "cold", t.TempDir(), script)
		if string(r.Stdout) != want {
			t.Errorf("without Landlock %v: unshare and two mounts returned %q, want %q; %s", bare, r.Stdout, want, r.Stderr)
		}
	}
	r := shell(t, newBackend(), "cold", t.TempDir(), script)
	if string(r.Stdout) != "-1 -1 -1\n" {
		t.Errorf("with the filter: %q", r.Stdout)
	}
}
