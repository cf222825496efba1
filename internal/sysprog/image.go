package sysprog

import (
	"fmt"
	"runtime"
	"unsafe"
)

// A control is the header of a program's memory, with which caller and child exchange data.
// The assembly reads and writes it.
type control struct {
	first   uint64 // the address of the first record
	flags   uint64 // of clone
	pid     int64  // the result of clone: the pid, or an error as a negative number
	pidFD   int32  // the kernel stores it before the child runs
	forked  int32  // the pid of a fork, stored by the kernel before that child runs
	current uint64 // the address of the most recently started record
	failed  uint64 // 1 when that record failed
	blocked uint64 // all signals
	mask    uint64 // the signals that the calling thread itself blocks
	// After a record that continues: next is the address of the control block to continue
	// with, and entry, in that block, is the address of the record.
	next, entry uint64
}

// A record is a step in memory. The assembly reads it and writes its result.
type record struct {
	number   uint64
	args     [maxArgs]uint64
	indirect uint64 // bit i: args[i] is the address of the argument
	result   uint64 // if the call failed: minus the error number
	ignore   uint64 // the address of a list of results to replace by -1, ended by 0; 0 for none
	flags    uint64
	want     uint64
}

// The flags of a record.
const (
	recordForks     = 1 << iota // the child continues, the parent exits
	recordWants                 // the result has to be want
	recordContinues             // continue with the records of another control block
)

// The parts of the memory follow each other: control, records, data.
const (
	sizeofControl  = int(unsafe.Sizeof(control{}))
	offsetForked   = int(unsafe.Offsetof(control{}.forked))
	sizeofRecord   = int(unsafe.Sizeof(record{}))
	offsetNumber   = int(unsafe.Offsetof(record{}.number))
	offsetArgs     = int(unsafe.Offsetof(record{}.args))
	offsetIndirect = int(unsafe.Offsetof(record{}.indirect))
	offsetResult   = int(unsafe.Offsetof(record{}.result))
	offsetIgnore   = int(unsafe.Offsetof(record{}.ignore))
	offsetFlags    = int(unsafe.Offsetof(record{}.flags))
	offsetWant     = int(unsafe.Offsetof(record{}.want))
	wordSize       = 8

	// numberXor marks a record that makes no system call: its result is the first argument XOR
	// the second.
	numberXor = 0xffff
)

// An Image is a program laid out for this machine. It does not change and can be run any
// number of times, also concurrently.
type Image struct {
	program *Program
	arch    arch
	// memory is copied for each run. The words at the offsets in addresses contain offsets, to
	// which the address of the copy has to be added.
	memory    []byte
	addresses []int
	// What is only known at a run: where the descriptors of files and sync ends go, where the
	// addresses of vectors and strings go, and the macros for closing descriptors.
	files   []fileUse
	texts   []textUse
	closing []closing
	// output is the offset of the bytes that the program returns.
	output, outputSize int
	// steps is the step that each record belongs to.
	steps []int
	// Properties of the program that each run needs: whether it waits for its parent, whether
	// it may clear the caller's "dumpable" flag, and the number of the record that forks, or
	// -1.
	syncs, changesIDs bool
	fork              int
	// afterSync is the record after the program's only SyncParent, if the program begins with
	// it, or 0. continues is the record after which a prelude continues with another program.
	afterSync, continues int
}

// A fileUse is a word that is set to the number of a descriptor.
type fileUse struct {
	offset int
	arg    Arg
}

// A textUse is a word that is set to the address of a vector or string of the run.
type textUse struct {
	offset int
	kind   Kind
	index  int // of Options.Texts
}

// A closing is a sequence of records for one CloseOthers.
type closing struct {
	offset, records int
	keep            []int
}

// Load lays a program out for this machine. The program must not change while the image is
// used.
func Load(p *Program) (*Image, error) { return load(p, arch(runtime.GOARCH)) }

func load(p *Program, a arch) (*Image, error) {
	if !a.supported() {
		return nil, ErrUnsupported
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("cannot load the program: %w", err)
	}
	im := &Image{program: p, arch: a, syncs: p.syncs(), changesIDs: p.makes(idCalls...), fork: -1}
	starts := im.countRecords()
	if n := p.afterSync(); n > 0 {
		im.afterSync = starts[n]
	}
	size := sizeofControl + len(im.steps)*sizeofRecord
	im.memory = make([]byte, size, size+p.dataSize())
	im.addresses = make([]int, 0, 2*len(im.steps))
	im.putAddress(0, sizeofControl)
	for i := range p.Steps {
		im.layStep(&p.Steps[i], starts, starts[i])
	}
	return im, nil
}

// dataSize returns how much memory the arguments of a program point to, or a little more or less:
// the memory grows if that is not enough.
func (p *Program) dataSize() int {
	const perText = 3 * wordSize // NUL, padding, and a struct around it
	size := 0
	for i := range p.Steps {
		s := &p.Steps[i]
		size += (len(s.Ignore) + 1) * wordSize
		if s.Call == macroSameFile {
			size += len(s.Args) * sizeofStatx
		}
		for j := range s.Args {
			a := &s.Args[j]
			if a.Text != "" {
				size += len(a.Text) + perText
			}
			for _, text := range a.List {
				size += len(text) + perText
			}
		}
	}
	return size
}

// countRecords fills im.steps and returns the first record of each step.
func (im *Image) countRecords() []int {
	starts := make([]int, len(im.program.Steps))
	im.steps = make([]int, 0, 2*len(im.program.Steps))
	for i := range im.program.Steps {
		starts[i] = len(im.steps)
		n := 1
		switch s := &im.program.Steps[i]; s.Call {
		case macroCloseOthers: // a range before, between and after the kept ones
			n = len(s.Args) + len(im.program.Files) + 1
			if im.syncs {
				n += 2
			}
		case macroSameFile:
			n = 4
		case macroDropBounding:
			n = len(droppable(s.Args[0].Value))
		}
		for range n {
			im.steps = append(im.steps, i)
		}
	}
	return starts
}

// offsetOf returns the offset of record n.
func offsetOf(n int) int { return sizeofControl + n*sizeofRecord }

func (im *Image) layStep(s *Step, starts []int, n int) {
	switch s.Call {
	case macroCloseOthers:
		im.layClosing(s, n)
	case macroSameFile:
		im.laySameFile(s, starts, n)
	case macroDropBounding:
		im.layDropBounding(s, n)
	case "clone3":
		im.layFork(s, n)
	default:
		number, _ := im.arch.number(s.Call)
		im.put(offsetOf(n)+offsetNumber, number)
		for i := range s.Args {
			im.layArg(offsetOf(n), i, &s.Args[i], starts)
		}
		im.layConditions(s, n)
	}
}

// layClosing adds records whose ranges are filled in at each run.
func (im *Image) layClosing(s *Step, n int) {
	c := closing{offset: offsetOf(n)}
	for i := n; i < len(im.steps) && im.steps[i] == im.steps[n]; i++ {
		im.layCall(i, "close_range", fdMax, fdMax)
		im.layConditions(s, i)
		c.records++
	}
	for _, a := range s.Args {
		c.keep = append(c.keep, int(a.Value))
	}
	im.closing = append(im.closing, c)
}

// layDropBounding adds a record for each capability to drop, because there is no call that
// drops several.
func (im *Image) layDropBounding(s *Step, n int) {
	for i, c := range droppable(s.Args[0].Value) {
		im.layCall(n+i, "prctl", prCapBsetDrop, c)
		im.layConditions(s, n+i)
	}
}

// droppable returns the capabilities of this machine's kernel that are not in keep.
func droppable(keep uint64) (list []uint64) {
	for c := range uint64(lastCapability() + 1) {
		if keep&(1<<c) == 0 {
			list = append(list, c)
		}
	}
	return list
}

// laySameFile adds records that read the inode and the device of both descriptors, and records
// that compare them.
func (im *Image) laySameFile(s *Step, starts []int, n int) {
	empty := im.text("")
	var found [2]int
	for i := range s.Args {
		found[i] = im.data(make([]byte, sizeofStatx))
		im.layCall(n+i, "statx", 0, 0, AtEmptyPath|atStatxDontSync, statxIno)
		im.layArg(offsetOf(n+i), 0, &s.Args[i], starts)
		im.putAddress(offsetOf(n+i)+offsetArgs+wordSize, empty)
		im.putAddress(offsetOf(n+i)+offsetArgs+4*wordSize, found[i])
	}
	for i, field := range []int{offsetStatxIno, offsetStatxDev} {
		rec := offsetOf(n + 2 + i)
		im.put(rec+offsetNumber, numberXor)
		im.putAddress(rec+offsetArgs, found[0]+field)
		im.putAddress(rec+offsetArgs+wordSize, found[1]+field)
		im.put(rec+offsetIndirect, 0b11)
		im.put(rec+offsetFlags, recordWants) // want is 0
	}
}

// layFork adds the record that replaces this process by a new one. The new one's exit signal
// is that of this process, and it has no handlers of the caller.
func (im *Image) layFork(s *Step, n int) {
	im.fork = n
	flags := s.Args[0].Value | cloneVM | cloneVfork | cloneParent | cloneParentSetTID | cloneClearSighand
	args := im.data(make([]byte, sizeofCloneArgs))
	im.put(args, flags)
	im.putAddress(args+offsetCloneParentTID, offsetForked)
	im.layCall(n, "clone3", 0, sizeofCloneArgs)
	im.putAddress(offsetOf(n)+offsetArgs, args)
	im.put(offsetOf(n)+offsetFlags, recordForks)
}

func (im *Image) layCall(n int, name string, args ...uint64) {
	number, _ := im.arch.number(name)
	im.put(offsetOf(n)+offsetNumber, number)
	for i, v := range args {
		im.put(offsetOf(n)+offsetArgs+i*wordSize, v)
	}
}

// layConditions sets what the result of a record has to be.
func (im *Image) layConditions(s *Step, n int) {
	if len(s.Ignore) > 0 {
		list := im.words()
		for _, e := range s.Ignore {
			im.words(-uint64(e))
		}
		im.words(0)
		im.putAddress(offsetOf(n)+offsetIgnore, list)
	}
	if s.Want != nil {
		im.put(offsetOf(n)+offsetFlags, recordWants)
		im.put(offsetOf(n)+offsetWant, *s.Want)
	}
}

// layArg sets argument i of the record at an offset.
func (im *Image) layArg(rec, i int, a *Arg, starts []int) {
	at := rec + offsetArgs + i*wordSize
	switch a.Kind {
	case KindConst:
		im.put(at, a.Value)
	case KindOpenFlags:
		im.put(at, im.arch.openFlags(OpenFlag(a.Value)))
	case KindOpenHow:
		how := im.words(im.arch.openFlags(OpenFlag(a.Value)))
		im.bytes(a.Text)
		im.putAddress(at, how)
	case KindString:
		im.putAddress(at, im.text(a.Text))
	case KindBytes:
		im.putAddress(at, im.bytes(a.Text))
	case KindFilter:
		im.putAddress(at, im.filter(a.Text))
	case KindVector:
		im.putAddress(at, im.vector(a.List))
	case KindMessage:
		im.putAddress(at, im.message(a.Text, uint32(a.Value)))
	case KindEnviron, KindArgv, KindText:
		im.texts = append(im.texts, textUse{at, a.Kind, int(a.Value)})
	case KindOutput:
		im.output, im.outputSize = im.data(make([]byte, a.Value)), int(a.Value)
		im.putAddress(at, im.output)
	case KindResult:
		im.putAddress(at, offsetOf(starts[a.Value])+offsetResult)
		indirect := rec + offsetIndirect
		im.put(indirect, im.get(indirect)|1<<i)
	case KindFile, KindSync:
		im.files = append(im.files, fileUse{at, *a})
	}
}
