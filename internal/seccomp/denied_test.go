package seccomp

import (
	"runtime"
	"testing"
)

// N1: a call for namespaces is described.
func TestNewNamespaces(t *testing.T) {
	for _, c := range []struct {
		call string
		flag uint64
		want string
	}{
		{"clone", 0x10000011, "new user namespace"}, {"unshare", 0x20020000, "new pid and mount namespaces"},
		{"clone", newNamespace, "new user, pid, network, mount, IPC, UTS and cgroup namespaces"}, {"clone", 0x11, ""}, {"setns", newNamespace, ""},
	} {
		if got := NewNamespaces(c.call, [6]uint64{c.flag}); got != c.want {
			t.Errorf("%s(%#x): %q, want %q", c.call, c.flag, got, c.want)
		}
	}
}

// N1: the listener is handed the calls that Denied knows, and no other one that the
// filter denies; without the group the filter answers itself.
func TestNotifyDenied(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("Denied is about this architecture")
	}
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	silent, asking, leaving := mustProgram(t, Options{}), mustProgram(t, Options{Notify: NotifyDenied}), mustProgram(t, Options{LeaveDenied: true})
	asked := 0
	for _, e := range numbers {
		n := m.pick(e)
		if n == absent {
			continue
		}
		for _, arg := range []uint64{0, newNamespace, 0x11, modeChar | 0o600, modeBlock, 0o100644, 1 << 32} {
			args := [6]uint64{arg, arg, arg}
			d := data{arch: m.audit, number: uint32(n), args: args}
			before, after := mustEvaluate(t, silent, d), mustEvaluate(t, asking, d)
			_, rule, told := Denied(n, args)
			left := mustEvaluate(t, leaving, d)
			switch {
			case told != (left != before) || told && left != retAllow:
				t.Errorf("%s(%#x): the filter says %#x, and %#x where another one denies it", e.name, arg, before, left)
			case told && (before != retErrno|uint32(rule.Errno) || after != retAsk):
				t.Errorf("%s(%#x): the filter says %#x, and %#x where it asks", e.name, arg, before, after)
			case !told && before != after:
				t.Errorf("%s(%#x): the filter says %#x, and %#x where it asks, and nobody knows why", e.name, arg, before, after)
			case told:
				asked++
			}
		}
	}
	if asked < 20 {
		t.Errorf("only %d calls were handed over", asked)
	}
}
