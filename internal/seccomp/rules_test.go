package seccomp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// mustRules returns the rules for o in words.
func mustRules(t *testing.T, o Options) []Rule {
	t.Helper()
	list, err := Rules(o)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Every rule can be shown to a person: it has a name, a reason, and calls that
// the architecture has.
func TestRulesAreComplete(t *testing.T) {
	for _, o := range everyOptions() {
		m, _ := machineFor(o.Arch)
		for i, r := range mustRules(t, o) {
			if r.Name == "" || r.Reason == "" || (len(r.Calls) == 0) != (i < 2) {
				t.Errorf("%+v: rule %d is incomplete: %+v", o, i, r)
			}
			if strings.HasPrefix(r.Errno.String(), "errno") {
				t.Errorf("%+v: rule %q has an error without a name: %v", o, r.Name, r.Errno)
			}
			for _, call := range r.Calls {
				if n, ok := m.number(call); !ok || n == absent {
					t.Errorf("%+v: rule %q names %s, which %s does not have", o, r.Name, call, o.Arch)
				}
			}
		}
	}
}

func TestRulesFollowOptions(t *testing.T) {
	has := func(o Options, name string) bool {
		return slices.ContainsFunc(mustRules(t, o), func(r Rule) bool { return r.Name == name })
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

// Calls with their arguments in other places are one rule to a reader.
func TestRulesMerge(t *testing.T) {
	list := mustRules(t, Options{Arch: "amd64"})
	i := slices.IndexFunc(list, func(r Rule) bool { return r.Name == "device nodes" })
	if i < 0 || !slices.Equal(list[i].Calls, []string{"mknod", "mknodat"}) {
		t.Errorf("device nodes: want one rule with mknod and mknodat in %+v", list)
	}
}

func TestRuleJSON(t *testing.T) {
	b, err := json.Marshal(Rule{Name: "n", Calls: []string{"c"}, Errno: EPERM, Reason: "r"})
	if want := `{"name":"n","calls":["c"],"errno":"EPERM","reason":"r"}`; err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
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
	_, err := compile(m, []rule{{name: "made up", calls: []string{"frobnicate"}, errno: EPERM}})
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
	_, err := compile(m, []rule{{name: "long", calls: []string{"ioctl"}, terms: []term{oneOf(1, values...)}, errno: EPERM}})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got error %v, want one about the length", err)
	}
}

// A rule without terms decides alone, also after one with terms.
func TestUnconditionalRuleWins(t *testing.T) {
	m, _ := machineFor("amd64")
	program, err := compile(m, []rule{
		{name: "a", calls: []string{"ioctl"}, terms: []term{oneOf(1, 7)}, errno: ENOSYS},
		{name: "b", calls: []string{"ioctl"}, errno: EPERM},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := mustEvaluate(t, program, data{number: 16, arch: m.audit}); got != 0x00050001 {
		t.Errorf("got 0x%x, want EPERM", got)
	}
}
