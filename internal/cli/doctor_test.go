package cli

import (
	"testing"

	"github.com/cloche-dev/cloche/host"
)

// A11 C5: doctor names what a Mac has and lacks, and nothing of Linux's.
func TestFactsOfOtherSystems(t *testing.T) {
	names := func(s *host.Snapshot) (out string) {
		for _, f := range factsOf(s) {
			out += f.name + ": " + f.outcome.String() + ": " + f.text + " [" + f.fix + "]\n"
		}
		return out
	}
	mac := &host.Snapshot{OS: "darwin", Arch: "arm64", Kernel: "24.5.0", User: "ana", UID: 501, Seatbelt: host.Probe{Outcome: host.Yes}}
	const head = "system: unknown: darwin/arm64, kernel 24.5.0 []\nuser: unknown: ana (uid 501) []\n"
	if got := names(mac); got != head+"seatbelt: yes: confines commands, by /usr/bin/sandbox-exec []\n" {
		t.Errorf("a Mac: %s", got)
	}
	mac.Seatbelt = host.Probe{Outcome: host.No, Reason: "in a sandbox", Fix: "leave it"}
	if got := names(mac); got != head+"seatbelt: no: in a sandbox [leave it]\n" {
		t.Errorf("a Mac in a sandbox: %s", got)
	}
	if got := names(&host.Snapshot{OS: "windows", Arch: "amd64", User: "ana", UID: -1}); got != "system: unknown: windows/amd64 []\nuser: unknown: ana (uid -1) []\n" {
		t.Errorf("Windows: %s", got)
	}
}
