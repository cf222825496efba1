package sysprog

import (
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

// A Program is a list of system calls, as plain data. The zero value is empty and ready to
// use.
type Program struct {
	Steps []Step
	// Files names the descriptors of Options.Files.
	Files []string
	// Texts names the strings of Options.Texts.
	Texts []string
}

// A Step is one system call of a program. Its result is kept for later steps; after an ignored
// error it is -1, which is no descriptor.
type Step struct {
	// Call is the name of the call, or of a macro that stands for several.
	Call string
	Args []Arg
	// Want, unless nil, is the result that the call must have. Any other result fails the
	// step, for example end of file in a read.
	Want *uint64
	// Ignore are errors that do not fail the step.
	Ignore []Errno
	// Label describes the purpose of the step, Origin is the rule behind it.
	Label  string
	Origin policy.Origin
}

// The macros. The first closes every descriptor except the files of the program and its
// arguments; the ranges to close are only known when the program runs. The second compares the
// statx results of two descriptors. The third drops the kernel's capabilities from the
// bounding set.
const (
	macroCloseOthers  = "@close_others"
	macroSameFile     = "@same_file"
	macroDropBounding = "@drop_bounding"
)

// AddFile adds a descriptor that the caller passes to Run, in the order of the calls of
// AddFile, and returns the argument that stands for it.
func (p *Program) AddFile(name string) Arg {
	p.Files = append(p.Files, strings.ToValidUTF8(name, "\uFFFD"))
	return Arg{Kind: KindFile, Value: uint64(len(p.Files) - 1)}
}

// AddText adds a string that the caller passes to Run, in the order of the calls of AddText,
// and returns the argument that stands for it. So one image can be used for runs with
// different strings.
func (p *Program) AddText(name string) Arg {
	p.Texts = append(p.Texts, strings.ToValidUTF8(name, "\uFFFD"))
	return Arg{Kind: KindText, Value: uint64(len(p.Texts) - 1)}
}

// For returns a builder of steps with this origin and label. Bytes of the label that are not
// UTF-8 are replaced.
func (p *Program) For(origin policy.Origin, label string) Block {
	return Block{p: p, origin: origin, label: strings.ToValidUTF8(label, "\uFFFD")}
}

// makes reports whether a step makes one of the calls.
func (p *Program) makes(calls ...string) bool {
	for i := range p.Steps {
		if slices.Contains(calls, p.Steps[i].Call) {
			return true
		}
	}
	return false
}

// syncs reports whether the program waits for its parent.
func (p *Program) syncs() bool {
	for i := range p.Steps {
		for j := range p.Steps[i].Args {
			if p.Steps[i].Args[j].Kind == KindSync {
				return true
			}
		}
	}
	return false
}

// afterSync returns the step after the SyncParent with which the program begins. It returns 0
// if the program does not begin with one, or waits for its parent again.
func (p *Program) afterSync() int {
	last, reads := 0, 0
	for i := range p.Steps {
		if slices.ContainsFunc(p.Steps[i].Args, func(a Arg) bool { return a.Kind == KindSync }) {
			last = i
			if p.Steps[i].Call == "read" {
				reads++
			}
		}
	}
	const readOfFirst = 3 // see SyncParent
	if reads != 1 || last != readOfFirst {
		return 0
	}
	return last + 1
}

// idCalls are calls after which the kernel may clear the "dumpable" flag of the process. The
// flag belongs to the memory, which is the caller's: it would lose core dumps and, as an
// ordinary user, access to its own files in /proc.
var idCalls = []string{"setresuid", "setresgid", "setns", "unshare"}

// ends reports whether a successful step is the last one to run.
func (s *Step) ends() bool {
	return s.Call == "execve" || s.Call == "execveat" || s.Call == "exit_group"
}

// A Block builds steps with one label and one origin. It is a value: blocks derived from it do
// not change it.
//
// The result of a method is an argument for later steps: a descriptor, unless stated
// otherwise. All descriptors are close-on-exec unless stated otherwise.
type Block struct {
	p      *Program
	label  string
	origin policy.Origin
	ignore []Errno
}

// Ignoring returns a block whose steps do not fail with these errors.
func (b Block) Ignoring(errs ...Errno) Block {
	b.ignore = append(slices.Clip(b.ignore), errs...)
	return b
}

// dependent returns a block for steps that use a descriptor which this block makes: if making
// it may fail, the steps may fail with EBADF.
func (b Block) dependent() Block {
	if len(b.ignore) == 0 {
		return b
	}
	return b.Ignoring(EBADF)
}

// Call adds any of the allowed system calls.
func (b Block) Call(name string, args ...Arg) { b.add(name, args) }

// CallResult adds any of the allowed system calls and returns the argument that stands for its
// result.
func (b Block) CallResult(name string, args ...Arg) Arg {
	b.add(name, args)
	return Arg{Kind: KindResult, Value: uint64(len(b.p.Steps) - 1)}
}

func (b Block) add(name string, args []Arg) *Step {
	b.p.Steps = append(b.p.Steps, Step{
		Call: name, Args: slices.Clone(args), Ignore: slices.Clone(b.ignore), Label: b.label, Origin: b.origin,
	})
	return &b.p.Steps[len(b.p.Steps)-1]
}

// exactly adds a call that has to return n.
func (b Block) exactly(n int, name string, args ...Arg) {
	want := uint64(n)
	b.add(name, args).Want = &want
}
