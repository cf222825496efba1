package host

import (
	"testing"

	"golang.org/x/sys/unix"
)

// C2: a kernel without diagnostics of unix sockets is known by its answer, and an
// answer that does not come from it decides nothing.
func TestUnixDiagnostics(t *testing.T) {
	for answer, want := range map[unix.Errno]Outcome{unix.EINVAL: Yes, unix.ENOENT: No, unix.EOPNOTSUPP: No, unix.EPROTONOSUPPORT: Unknown, unix.EPERM: Unknown} {
		p := unixDiagnostics(func() error { return answer })
		if p.Outcome != want || want == No && (p.Reason == "" || p.Fix == "") {
			t.Errorf("%v: %+v, want %v", answer, p, want)
		}
	}
	// Whatever this kernel has, it answers, or a filter refuses the question.
	first, again := knownDiagnostics(), knownDiagnostics()
	if first != again || first.Outcome == Unknown && first.Reason == "" {
		t.Errorf("this kernel: %+v, then %+v", first, again)
	}
}
