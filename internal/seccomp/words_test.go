package seccomp

import (
	"fmt"
	"slices"
)

// String returns the instruction in the notation of the kernel's bpf_asm, with
// the distances of jumps.
func (i Instruction) String() string {
	switch i.Op {
	case opLoad:
		return fmt.Sprintf("ld [%d]", i.K)
	case opAnd:
		return fmt.Sprintf("and #0x%x", i.K)
	case opEqual:
		return fmt.Sprintf("jeq #0x%x, +%d, +%d", i.K, i.Jt, i.Jf)
	case opLeast:
		return fmt.Sprintf("jge #%d, +%d, +%d", i.K, i.Jt, i.Jf)
	case opBits:
		return fmt.Sprintf("jset #0x%x, +%d, +%d", i.K, i.Jt, i.Jf)
	case opRet:
		return fmt.Sprintf("ret #0x%x", i.K)
	}
	return fmt.Sprintf("op 0x%x jt %d jf %d k 0x%x", i.Op, i.Jt, i.Jf, i.K)
}

// askedCalls returns the calls that the listener of a filter for o may be asked
// about, in the order of their names.
func askedCalls(o Options) ([]string, error) {
	m, err := machineFor(o.Arch)
	if err != nil {
		return nil, err
	}
	denied := map[string]bool{}
	rules := rulesFor(o)
	for _, r := range rules {
		for _, call := range r.calls {
			denied[call] = denied[call] || len(r.terms) == 0 && !r.notify
		}
	}
	var list []string
	for _, r := range append(rules, notifyRules(o, m)...) {
		for _, call := range r.calls {
			if n, _ := m.number(call); r.notify && n != absent && !denied[call] {
				list = append(list, call)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
