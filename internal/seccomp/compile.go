package seccomp

import (
	"fmt"
	"slices"
)

// A segment is a run of system-call numbers with one outcome, from first up to
// the next segment.
type segment struct {
	first   int
	outcome label
}

// A compiler turns rules into a program for one machine. The program checks the
// architecture, finds the segment of the number in a balanced tree, and either
// returns or checks arguments.
type compiler struct {
	assembler
	machine machine
	rules   []Rule
	returns []ret
	blocks  []block
}

// A ret is a return instruction that the whole program shares.
type ret struct {
	value uint32
	label label
}

// A block checks arguments against some of the rules, by their indexes in
// turn. Calls that the same rules speak of share it.
type block struct {
	rules []int
	label label
}

// compile returns the program that denies what the rules say and allows all
// other calls up to lastKnown.
func compile(m machine, rules []Rule) ([]Instruction, error) {
	c := &compiler{machine: m, rules: rules}
	segments, err := c.segments()
	if err != nil {
		return nil, err
	}
	ours := c.label()
	c.emit(opLoad, offsetArch)
	c.branch(opEqual, m.audit, ours, c.result(retKill))
	c.place(ours)
	c.emit(opLoad, offsetNumber)
	c.tree(segments)
	for _, b := range c.blocks {
		c.block(b)
	}
	for _, r := range c.returns {
		c.place(r.label)
		c.emit(opRet, r.value)
	}
	return c.finish()
}

// segments returns the outcome of every number in order. The last segment has
// no end: it takes the numbers after lastKnown, and with them x32, whose
// numbers have bit 30 set, and -1.
func (c *compiler) segments() ([]segment, error) {
	byNumber, err := c.rulesByNumber()
	if err != nil {
		return nil, err
	}
	var list []segment
	add := func(first int, outcome label) {
		if n := len(list); n == 0 || list[n-1].outcome != outcome {
			list = append(list, segment{first, outcome})
		}
	}
	for n := 0; n <= lastKnown; n++ {
		add(n, c.outcome(byNumber[n]))
	}
	add(lastKnown+1, c.denial(ENOSYS))
	return list, nil
}

// rulesByNumber returns, for each number, the indexes of its rules.
func (c *compiler) rulesByNumber() (*[lastKnown + 1][]int, error) {
	var byNumber [lastKnown + 1][]int
	for i, r := range c.rules {
		for _, name := range r.calls {
			n, ok := c.machine.number(name)
			switch {
			case !ok || n > lastKnown:
				return nil, fmt.Errorf("seccomp: rule %q names the call %s, which is not in the table", r.Name, name)
			case n != absent:
				byNumber[n] = append(byNumber[n], i)
			}
		}
	}
	return &byNumber, nil
}

// outcome returns where a call with those rules goes. A denial without terms
// decides alone, wherever it stands.
func (c *compiler) outcome(rules []int) label {
	if len(rules) == 0 {
		return c.result(retAllow)
	}
	for _, i := range rules {
		if r := &c.rules[i]; len(r.terms) == 0 && (!r.notify || len(rules) == 1) {
			return c.result(r.value())
		}
	}
	for _, b := range c.blocks {
		if slices.Equal(b.rules, rules) {
			return b.label
		}
	}
	b := block{rules, c.label()}
	c.blocks = append(c.blocks, b)
	return b.label
}

// denial returns the label of the instruction that returns the error.
func (c *compiler) denial(e Errno) label { return c.result(retErrno | uint32(e)) }

// result returns the label of the instruction that returns value.
func (c *compiler) result(value uint32) label {
	for _, r := range c.returns {
		if r.value == value {
			return r.label
		}
	}
	c.returns = append(c.returns, ret{value, c.label()})
	return c.returns[len(c.returns)-1].label
}

// tree writes a binary search for the segment of the number in the accumulator
// and returns its label. One segment needs no search: its label is its outcome.
func (c *compiler) tree(segments []segment) label {
	if len(segments) == 1 {
		return segments[0].outcome
	}
	here := c.label()
	c.place(here)
	middle := len(segments) / 2
	at := len(c.jumps)
	c.branch(opLeast, uint32(segments[middle].first), here, here)
	c.jumps[at].no = c.tree(segments[:middle])
	c.jumps[at].yes = c.tree(segments[middle:])
	return here
}

// block writes the checks of one block: the first rule whose terms all hold
// decides; a call that none of them speaks of is allowed. A last rule without
// terms takes what is left.
func (c *compiler) block(b block) {
	c.place(b.label)
	rules, rest := b.rules, c.result(retAllow)
	if last := &c.rules[rules[len(rules)-1]]; len(last.terms) == 0 {
		rules, rest = rules[:len(rules)-1], c.result(last.value())
	}
	for i, index := range rules {
		r := c.rules[index]
		miss, last := rest, i == len(rules)-1
		if !last {
			miss = c.label()
		}
		c.conditions(r.terms, c.result(r.value()), miss)
		if !last {
			c.place(miss)
		}
	}
}

// conditions goes to hit where all of the terms hold, else to miss.
func (c *compiler) conditions(terms []term, hit, miss label) {
	for i, t := range terms {
		if i == len(terms)-1 {
			c.term(t, hit, miss)
			return
		}
		next := c.label()
		c.term(t, next, miss)
		c.place(next)
	}
}

// term goes to hit where the term holds, else to miss. It loads the low half
// of the argument, which is first in memory: the kernel cuts the arguments that
// the rules look at to 32 bits or fewer, so a comparison of all 64 would be
// passed by setting a bit that the call then ignores. (unshare does not cut its
// argument, and refuses one with a high bit.) Only a pointer has a high half.
func (c *compiler) term(t term, hit, miss label) {
	offset := offsetArgs + 8*t.arg
	if t.high {
		offset += 4
	}
	c.emit(opLoad, uint32(offset))
	if t.mask != 0 {
		c.emit(opAnd, t.mask)
	}
	switch t.test {
	case hasBits:
		c.branch(opBits, t.values[0], hit, miss)
	case isOneOf:
		c.search(t.values, hit, miss)
	case isNoneOf:
		c.search(t.values, miss, hit)
	}
}

// search goes to found where the accumulator is one of the values.
func (c *compiler) search(values []uint32, found, other label) {
	for _, v := range values[:len(values)-1] {
		next := c.label()
		c.branch(opEqual, v, found, next)
		c.place(next)
	}
	c.branch(opEqual, values[len(values)-1], found, other)
}
