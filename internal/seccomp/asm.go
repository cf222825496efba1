package seccomp

import "fmt"

// An Instruction is one of classic BPF, with the fields of struct sock_filter.
type Instruction struct {
	Op     uint16
	Jt, Jf uint8
	K      uint32
}

// The operations that the filter uses. All of them are among those that the
// kernel can evaluate ahead of time to find the calls that are always allowed.
const (
	opLoad  = 0x20 // BPF_LD | BPF_W | BPF_ABS
	opAnd   = 0x54 // BPF_ALU | BPF_AND | BPF_K
	opEqual = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	opLeast = 0x35 // BPF_JMP | BPF_JGE | BPF_K
	opBits  = 0x45 // BPF_JMP | BPF_JSET | BPF_K
	opRet   = 0x06 // BPF_RET | BPF_K
)

// Offsets into struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// Values that a filter returns.
const (
	retKill  = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	retErrno = 0x00050000 // SECCOMP_RET_ERRNO, the error in the low 16 bits
	retAsk   = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	retAllow = 0x7fff0000 // SECCOMP_RET_ALLOW
)

// A label is a place in a program that may not have been written yet.
type label int

// A jump is an instruction whose distances are still to be filled in.
type jump struct {
	at      int
	yes, no label
}

// An assembler writes a program whose jumps name labels.
type assembler struct {
	code   []Instruction
	places []int // by label, the index of the instruction that it stands before
	jumps  []jump
}

// label makes a new label. It must be placed before the program is finished.
func (a *assembler) label() label {
	a.places = append(a.places, -1)
	return label(len(a.places) - 1)
}

// place puts the label before the next instruction.
func (a *assembler) place(l label) { a.places[l] = len(a.code) }

// emit writes an instruction that does not jump.
func (a *assembler) emit(op uint16, k uint32) {
	a.code = append(a.code, Instruction{Op: op, K: k})
}

// branch writes a conditional jump.
func (a *assembler) branch(op uint16, k uint32, yes, no label) {
	a.jumps = append(a.jumps, jump{len(a.code), yes, no})
	a.emit(op, k)
}

// finish fills in the distances of all jumps.
func (a *assembler) finish() ([]Instruction, error) {
	for _, j := range a.jumps {
		yes, err := a.distance(j.at, j.yes)
		if err != nil {
			return nil, err
		}
		no, err := a.distance(j.at, j.no)
		if err != nil {
			return nil, err
		}
		a.code[j.at].Jt, a.code[j.at].Jf = yes, no
	}
	return a.code, nil
}

// distance returns how far the label is from the instruction. Classic BPF
// jumps forward only, and a conditional jump by at most 255 instructions.
func (a *assembler) distance(from int, l label) (uint8, error) {
	d := a.places[l] - from - 1
	if d < 0 || d > 255 {
		return 0, fmt.Errorf("seccomp: instruction %d jumps by %d, which classic BPF cannot: the filter is too long", from, d)
	}
	return uint8(d), nil
}
