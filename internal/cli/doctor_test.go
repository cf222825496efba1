package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
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

// N9 C5: doctor says what the search for files to hide leaves open, and the fix.
func TestSearchFact(t *testing.T) {
	for name, tt := range map[string]struct {
		found   []*hostfs.Found
		err     error
		outcome host.Outcome
		text    string
		fixed   bool
	}{
		"no rule":     {text: "are not searched for"},
		"no policy":   {err: errors.New("line 3: no such key"), text: "could not be looked for: line 3"},
		"all":         {found: []*hostfs.Found{{Folders: 40}, {Folders: 2}}, outcome: host.Yes, text: "in all folders here (42)"},
		"out of time": {found: []*hostfs.Found{{Root: "/w", Folders: 10, Unseen: 7}}, text: "7 or more folders in /w are not searched", fixed: true},
		"many files":  {found: []*hostfs.Found{{Root: "/w", Folders: 10, Omitted: 9}}, text: "9 files in /w are not hidden", fixed: true},
	} {
		f := searchFact(tt.found, tt.err)
		if f.name != "files to hide" || f.outcome != tt.outcome || !strings.Contains(f.text, tt.text) || (f.fix != "") != tt.fixed {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
