package sysprog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cloche-dev/cloche/policy"
)

// ExportOptions are the values for one exported program.
type ExportOptions struct {
	// Arch is the architecture on which it will run, a GOARCH.
	Arch string
	// Files are the numbers of the program's files in the process that runs it, in the order
	// of Program.AddFile.
	Files []int
	// Argv and Texts are as in Options. The environment is that of the process that runs the
	// program: an exported program contains no secrets.
	Argv, Texts []string
	// CloneFlags are the namespaces that a launcher makes for the program.
	CloneFlags uint64
	// Sync are the numbers of the child's and the parent's end of the rendezvous, for a
	// program that waits for its parent.
	Sync [2]int
	// Explain, unless empty, adds an error text for each step, for a launcher that prints
	// errors itself. Each text begins with this one.
	Explain string
}

// exportBase is the address at which an exported program is mapped. It is above the static
// programs, which begin at 4 MiB, and their break, which the kernel puts at most 1 GiB after
// them. It is below everything that the kernel places by itself, which begins at the top of
// the address space or at a third of it. It exists in every size of address space that arm64
// can have.
const exportBase = 1 << 32

// exportMagic is "cloche" and the version of the format, as in interp.h.
const exportMagic = 0x00016568636f6c63

// The words of the header of an exported program, in the order of struct image in interp.h.
const (
	headMagic = iota
	headBase
	headSize
	headRecords
	headCount
	headNamespaces
	headEnviron
	headTexts
	headErrors
	headErrorCount
	headCloneFailed
	headChanged
	headWords
)

const sizeofHead = headWords * wordSize

// ExportCommand lays out a program that executes something as the bytes of a file, for
// cloche's launcher in C: see package initprog. The file is mapped at a fixed address, which
// is unused in the launcher, so all addresses in it are final.
func ExportCommand(p *Program, o ExportOptions) ([]byte, error) {
	im, err := load(p, arch(o.Arch))
	if err != nil {
		return nil, err
	}
	return exportImage(im, len(im.steps), o)
}

// ExportPart is ExportCommand for a program that executes nothing: the process that runs it
// continues after its last step. The init runs one just before the command. It makes no
// namespaces and does not wait for its parent.
//
// The descriptors that it makes are close-on-exec, like those of all blocks, and it neither
// needs nor changes the signal mask.
func ExportPart(p *Program, o ExportOptions) ([]byte, error) {
	if p.syncs() || o.CloneFlags != 0 {
		return nil, errors.New("a part of a program makes no process: it can neither wait for its parent nor make namespaces")
	}
	// Every program that is laid out needs a last step; it is left out of the export.
	whole := Program{Steps: slices.Clone(p.Steps), Files: p.Files, Texts: p.Texts}
	whole.For(policy.Origin{}, "").Exit(0)
	im, err := load(&whole, arch(o.Arch))
	if err != nil {
		return nil, err
	}
	im.program = p
	return exportImage(im, len(im.steps)-1, o)
}

func exportImage(im *Image, records int, o ExportOptions) ([]byte, error) {
	if err := checkExport(im, o); err != nil {
		return nil, fmt.Errorf("cannot export the program: %w", err)
	}
	e := &exporter{image: im, options: o, out: make([]byte, sizeofHead)}
	e.data(im.memory)
	im.place(e.out[sizeofHead:], address(sizeofHead), o.Files, o.Sync)
	e.fillTexts()
	if o.Explain != "" {
		e.explain(records)
	}
	e.head(records)
	return e.out, nil
}

func checkExport(im *Image, o ExportOptions) error {
	if im.fork >= 0 {
		return errors.New("it forks, and only Run follows what was forked")
	}
	if im.outputSize > 0 {
		return errors.New("it hands something back, and only Run takes it")
	}
	if got, want := len(o.Files), len(im.program.Files); got != want {
		return fmt.Errorf("the program has %d files, and %d descriptors were passed", want, got)
	}
	if got, want := len(o.Texts), len(im.program.Texts); got != want {
		return fmt.Errorf("the program has %d texts, and %d were passed", want, got)
	}
	for _, fd := range slices.Concat(o.Files, o.Sync[:]) {
		if fd < 0 || fd > math.MaxInt32 {
			return fmt.Errorf("%d is not a descriptor", fd)
		}
	}
	return errors.Join(noNUL(o.Argv...), noNUL(o.Texts...), onlyNamespaces(o.CloneFlags))
}

// An exporter writes one program. Offsets in out are offsets in the file.
type exporter struct {
	image   *Image
	options ExportOptions
	out     []byte
}

func (e *exporter) put(offset int, v uint64) { binary.LittleEndian.PutUint64(e.out[offset:], v) }

func (e *exporter) get(offset int) uint64 { return binary.LittleEndian.Uint64(e.out[offset:]) }

// address returns the address that an offset of the file will have.
func address(offset int) uint64 { return exportBase + uint64(offset) }

// data appends bytes, aligned for words, and returns their offset.
func (e *exporter) data(b []byte) int {
	offset := len(e.out)
	e.out = append(e.out, b...)
	for len(e.out)%wordSize != 0 {
		e.out = append(e.out, 0)
	}
	return offset
}

func (e *exporter) text(s string) uint64 { return address(e.data(append([]byte(s), 0))) }

// fillTexts fills in the values of this export. The environment is read through an address in
// the header.
func (e *exporter) fillTexts() {
	var argv uint64
	for _, use := range e.image.texts {
		at := sizeofHead + use.offset
		switch use.kind {
		case KindEnviron:
			e.put(at, address(headEnviron*wordSize))
			e.makeIndirect(at)
		case KindArgv:
			if argv == 0 {
				argv = e.vector(e.options.Argv)
			}
			e.put(at, argv)
		default:
			e.put(at, e.text(e.options.Texts[use.index]))
		}
	}
}

// makeIndirect marks the argument at an offset as the address of the real argument.
func (e *exporter) makeIndirect(at int) {
	n := (at - sizeofHead - sizeofControl) / sizeofRecord
	record := sizeofHead + offsetOf(n)
	bit := (at - record - offsetArgs) / wordSize
	e.put(record+offsetIndirect, e.get(record+offsetIndirect)|1<<bit)
}

func (e *exporter) vector(list []string) uint64 {
	at := e.data(make([]byte, (len(list)+1)*wordSize))
	for i, s := range list {
		a := e.text(s)
		e.put(at+i*wordSize, a)
	}
	return address(at)
}

func (e *exporter) head(records int) {
	e.putHead(headMagic, exportMagic)
	e.putHead(headBase, exportBase)
	e.putHead(headSize, uint64(len(e.out)))
	e.putHead(headRecords, address(sizeofHead+offsetOf(0)))
	e.putHead(headCount, uint64(records))
	e.putHead(headNamespaces, e.options.CloneFlags)
}

func (e *exporter) putHead(word int, v uint64) { e.put(word*wordSize, v) }
