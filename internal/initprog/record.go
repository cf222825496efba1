package initprog

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"
)

// A RecordType says what a [Record] reports.
type RecordType uint32

// The types of records. Each occurs at most once per run, except Stopped and Continued.
const (
	// Started: the command was executed.
	Started RecordType = 1
	// ExecFailed: the command could not be executed; the value is the errno. It is the last
	// record.
	ExecFailed RecordType = 2
	// Exited: the command ended; the value is its wait status. It is the last
	// record.
	Exited RecordType = 3
	// Stopped: the command was stopped by the signal that is the value.
	Stopped RecordType = 4
	// Continued: the command runs again.
	Continued RecordType = 5
	// SetupFailed: the init's preparation failed; the value is a [Step] in the upper and an
	// errno in the lower 16 bits. It is the last record.
	SetupFailed RecordType = 6
	// ProgramFailed: the program of [Config.ProgramFD] failed; the value is the number of the
	// record in the upper 20 and an errno in the lower 12 bits, 0 for a call that succeeded
	// with an unexpected result. It is the last record.
	ProgramFailed RecordType = 7
)

// A Record is one report of the init.
type Record struct {
	Type  RecordType
	Value int32
}

const recordSize = 8

// ReadRecord reads one record. It returns io.EOF at the end.
func ReadRecord(r io.Reader) (Record, error) {
	var b [recordSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Record{}, err
	}
	rec := Record{
		Type:  RecordType(binary.LittleEndian.Uint32(b[:4])),
		Value: int32(binary.LittleEndian.Uint32(b[4:])),
	}
	if rec.Type < Started || rec.Type > ProgramFailed {
		return Record{}, fmt.Errorf("the init reported an unknown record type %d", rec.Type)
	}
	return rec, nil
}

// Errno returns the error of an ExecFailed, SetupFailed or ProgramFailed record.
func (r Record) Errno() syscall.Errno {
	if r.Type == ProgramFailed {
		return syscall.Errno(uint32(r.Value) & 0xfff)
	}
	return syscall.Errno(uint32(r.Value) & 0xffff)
}

// ProgramRecord returns the number of the failed record of the program, for a ProgramFailed
// record: see sysprog.ExportPart.
func (r Record) ProgramRecord() int { return int(uint32(r.Value) >> 12) }

// Step returns the step of a SetupFailed record.
func (r Record) Step() Step { return Step(uint32(r.Value) >> 16) }

// A Step is a part of the init's preparation that can fail.
type Step int

// The steps.
const (
	StepArguments Step = iota + 1
	StepDescriptors
	StepProcess
	StepSignals
	StepTerminal
	StepPipe
	StepFork
	StepLimits
	StepWait
	StepScope
	StepProgram
	StepOrder
	StepFolder
)

var stepNames = [...]string{
	StepArguments:   "reading the arguments",
	StepDescriptors: "closing descriptors",
	StepProcess:     "protecting the init",
	StepSignals:     "setting up signals",
	StepTerminal:    "taking the terminal",
	StepPipe:        "making a pipe",
	StepFork:        "forking",
	StepLimits:      "setting resource limits",
	StepWait:        "waiting for events",
	StepScope:       "keeping signals inside by Landlock",
	StepProgram:     "loading the command's program of system calls",
	StepOrder:       "receiving the command",
	StepFolder:      "going to the working folder",
}

// String describes the step.
func (s Step) String() string {
	if s < StepArguments || int(s) >= len(stepNames) {
		return fmt.Sprintf("step %d", int(s))
	}
	return stepNames[s]
}
