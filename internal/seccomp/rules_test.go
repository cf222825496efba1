package seccomp

import (
	"slices"
	"strings"
	"testing"
)

// Every rule can be shown to a person: it has a name, a reason, an error that programs
// know, and calls.
func TestRulesAreComplete(t *testing.T) {
	errors := []Errno{EPERM, ENOSYS, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EAFNOSUPPORT}
	for _, o := range everyOptions() {
		for i, r := range rulesFor(o) {
			if r.Name == "" || r.Reason == "" || len(r.calls) == 0 || !slices.Contains(errors, r.Errno) {
				t.Errorf("%+v: rule %d is incomplete: %+v", o, i, r)
			}
		}
	}
}

func TestRulesFollowOptions(t *testing.T) {
	has := func(o Options, name string) bool {
		return slices.ContainsFunc(rulesFor(o), func(r Rule) bool { return r.Name == name })
	}
	for _, c := range []struct {
		name    string
		o       Options
		without bool // the rule is there without the option
	}{
		{"namespaces", Options{AllowNamespaces: true}, true},
		{"mounts", Options{AllowNamespaces: true}, true},
		{"setuid files", Options{AllowSetuidBits: true}, true},
		{"internet protocols", Options{DenyInet: true}, true},
		{"datagram pairs", Options{DenyUnix: true}, false},
		{"IPC of the host", Options{DenyIPC: true}, false},
		{"other processes", Options{DenyOthers: true}, false},
		{"other owners", Options{OneOwner: true}, false},
	} {
		c.o.Arch = "amd64"
		if got := has(Options{Arch: "amd64"}, c.name); got != c.without {
			t.Errorf("without options: rule %q present: %v, want %v", c.name, got, c.without)
		}
		if got := has(c.o, c.name); got == c.without {
			t.Errorf("%+v: rule %q present: %v, want %v", c.o, c.name, got, !c.without)
		}
	}
}

// The table is sorted, without doubles, and every entry is used.
func TestNumbersTable(t *testing.T) {
	used := map[string]bool{}
	m, _ := machineFor("amd64")
	o := Options{DenyIPC: true, DenyUnix: true, DenyOthers: true, OneOwner: true, Notify: NotifyWrites | NotifyReads | NotifyExec | NotifyConnect | NotifyDatagrams}
	for _, r := range append(rulesFor(o), notifyRules(o, m)...) {
		for _, call := range r.calls {
			used[call] = true
		}
	}
	for i, e := range numbers {
		if i > 0 && numbers[i-1].name >= e.name {
			t.Errorf("%s is out of order", e.name)
		}
		if !used[e.name] {
			t.Errorf("%s is in no rule", e.name)
		}
	}
	if len(used) != len(numbers) {
		t.Errorf("%d calls in rules, %d in the table", len(used), len(numbers))
	}
}

// A rule about a call without a number must be an error, never a hole.
func TestUnlistedCallIsAnError(t *testing.T) {
	m, _ := machineFor("amd64")
	_, err := compile(m, []Rule{{Name: "made up", calls: []string{"frobnicate"}, Errno: EPERM}})
	if err == nil || !strings.Contains(err.Error(), "frobnicate") {
		t.Errorf("got error %v, want one that names the call", err)
	}
}

// A jump that classic BPF cannot make must be an error, never a wrong jump.
func TestLongJumpIsAnError(t *testing.T) {
	m, _ := machineFor("amd64")
	values := make([]uint32, 300)
	for i := range values {
		values[i] = uint32(i)
	}
	_, err := compile(m, []Rule{{Name: "long", calls: []string{"ioctl"}, terms: []term{oneOf(1, values...)}, Errno: EPERM}})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got error %v, want one about the length", err)
	}
}

// A rule without terms decides alone, also after one with terms.
func TestUnconditionalRuleWins(t *testing.T) {
	m, _ := machineFor("amd64")
	program, err := compile(m, []Rule{
		{Name: "a", calls: []string{"ioctl"}, terms: []term{oneOf(1, 7)}, Errno: ENOSYS},
		{Name: "b", calls: []string{"ioctl"}, Errno: EPERM},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := mustEvaluate(t, program, data{number: 16, arch: m.audit}); got != 0x00050001 {
		t.Errorf("got 0x%x, want EPERM", got)
	}
}
