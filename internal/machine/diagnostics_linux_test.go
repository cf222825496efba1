package machine

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/host"
)

// C2: a kernel without diagnostics of unix sockets is known by its answer, and an
// answer that does not come from it decides nothing.
func TestUnixDiagnostics(t *testing.T) {
	for answer, want := range map[unix.Errno]host.Outcome{unix.EINVAL: host.Yes, unix.ENOENT: host.No, unix.EOPNOTSUPP: host.No, unix.EPROTONOSUPPORT: host.Unknown, unix.EPERM: host.Unknown} {
		p := unixDiagnostics(func() error { return answer })
		if p.Outcome != want || want == host.No && (p.Reason == "" || p.Fix == "") {
			t.Errorf("%v: %+v, want %v", answer, p, want)
		}
	}
	// Whatever this kernel has, it answers, or a filter refuses the question.
	first, again := knownDiagnostics(), knownDiagnostics()
	if first != again || first.Outcome == host.Unknown && first.Reason == "" {
		t.Errorf("this kernel: %+v, then %+v", first, again)
	}
}
