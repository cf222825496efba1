package seccomp

import (
	"fmt"
	"testing"
)

// data is struct seccomp_data without the instruction pointer.
type data struct {
	number, arch uint32
	args         [6]uint64
}

// word returns the 32-bit word at an offset, as a little-endian kernel has it.
func (d data) word(offset uint32) (uint32, error) {
	switch {
	case offset == 0:
		return d.number, nil
	case offset == 4:
		return d.arch, nil
	case offset >= 16 && offset < 64 && offset%4 == 0:
		arg := d.args[(offset-16)/8]
		return uint32(arg >> (8 * (offset % 8))), nil
	}
	return 0, fmt.Errorf("load from offset %d", offset)
}

// evaluate runs the program as the kernel does and returns its value and how
// many instructions that took. It knows only the operations of the compiler,
// so another one, a jump out of the program or a missing return is an error.
func evaluate(program []Instruction, d data) (value uint32, steps int, err error) {
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		i := program[pc]
		steps++
		switch i.Op {
		case 0x20:
			if a, err = d.word(i.K); err != nil {
				return 0, steps, err
			}
		case 0x54:
			a &= i.K
		case 0x15:
			pc += branch(a == i.K, i)
		case 0x35:
			pc += branch(a >= i.K, i)
		case 0x45:
			pc += branch(a&i.K != 0, i)
		case 0x06:
			return i.K, steps, nil
		default:
			return 0, steps, fmt.Errorf("operation 0x%x at %d", i.Op, pc)
		}
	}
	return 0, steps, fmt.Errorf("the program ran off its end")
}

func branch(taken bool, i Instruction) int {
	if taken {
		return int(i.Jt)
	}
	return int(i.Jf)
}

// mustProgram returns the program for o.
func mustProgram(t testing.TB, o Options) []Instruction {
	t.Helper()
	p, err := Program(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mustEvaluate returns what the program says of d.
func mustEvaluate(t testing.TB, program []Instruction, d data) uint32 {
	t.Helper()
	v, _, err := evaluate(program, d)
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	return v
}
