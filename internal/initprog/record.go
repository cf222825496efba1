package initprog

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"
)

// A RecordType says what a [Record] reports.
type RecordType uint32

// The records. Each is at most once per run, except Stopped and Continued.
const (
	// Started: the command was executed.
	Started RecordType = 1
	// ExecFailed: it could not be executed; the value is the errno. It is the
	// last record.
	ExecFailed RecordType = 2
	// Exited: the command ended; the value is its wait status. It is the last
	// record.
	Exited RecordType = 3
	// Stopped: the command was stopped by the signal that is the value.
	Stopped RecordType = 4
	// Continued: the command runs again.
	Continued RecordType = 5
	// SetupFailed: the init could not prepare; the value is a [Step] in the
	// upper and an errno in the lower 16 bits. It is the last record.
	SetupFailed RecordType = 6
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
	if rec.Type < Started || rec.Type > SetupFailed {
		return Record{}, fmt.Errorf("the init reported an unknown record type %d", rec.Type)
	}
	return rec, nil
}

// Errno is the error of an ExecFailed or SetupFailed record.
func (r Record) Errno() syscall.Errno { return syscall.Errno(uint32(r.Value) & 0xffff) }

// Step is the step of a SetupFailed record.
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
}

// String says in words what the step does.
func (s Step) String() string {
	if s < StepArguments || int(s) >= len(stepNames) {
		return fmt.Sprintf("step %d", int(s))
	}
	return stepNames[s]
}
