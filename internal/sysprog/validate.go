package sysprog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// maxOutput limits the bytes that a program returns.
const maxOutput = 4096

// maxArgs is the number of arguments of a system call.
const maxArgs = 6

// Validate reports the first step that would fail in every run, or that would act on the
// caller and not on the child.
func (p *Program) Validate() error {
	if len(p.Steps) == 0 {
		return errors.New("the program is empty")
	}
	forks := 0
	for i := range p.Steps {
		if err := p.validateStep(i); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, visible(p.Steps[i].Call), err)
		}
		if p.Steps[i].Call == "clone3" {
			forks++
		}
	}
	if forks > 1 {
		return errors.New("the program forks more than once")
	}
	if p.outputs() > 1 {
		return errors.New("the program has more than one output")
	}
	if last := &p.Steps[len(p.Steps)-1]; !last.ends() {
		return fmt.Errorf("the program ends in %s; it has to end in execve, execveat or exit_group", visible(last.Call))
	}
	return nil
}

func (p *Program) outputs() (n int) {
	for i := range p.Steps {
		for j := range p.Steps[i].Args {
			if p.Steps[i].Args[j].Kind == KindOutput {
				n++
			}
		}
	}
	return n
}

func (p *Program) validateStep(i int) error {
	s := &p.Steps[i]
	for _, e := range s.Ignore {
		if !e.known() {
			return fmt.Errorf("unknown error number %d", int(e))
		}
	}
	for j := range s.Args {
		if err := p.validateArg(i, &s.Args[j]); err != nil {
			return fmt.Errorf("argument %d: %w", j, err)
		}
	}
	switch s.Call {
	case macroCloseOthers:
		return validateKept(s.Args)
	case macroSameFile:
		return validateCount(s.Args, 2)
	case macroDropBounding:
		return validateDrop(s)
	case "clone3":
		return validateFork(s)
	case "prctl":
		return validatePrctl(s.Args)
	case "seccomp":
		return validateSeccomp(s.Args)
	}
	if _, ok := amd64.number(s.Call); !ok {
		return errors.New("programs cannot make this call")
	}
	if len(s.Args) > maxArgs {
		return fmt.Errorf("%d arguments, more than %d", len(s.Args), maxArgs)
	}
	return nil
}

func (p *Program) validateArg(step int, a *Arg) error {
	switch a.Kind {
	case KindConst, KindOpenFlags, KindBytes, KindEnviron, KindArgv:
	case KindText:
		if a.Value >= uint64(len(p.Texts)) {
			return fmt.Errorf("there is no text %d; the program has %d", a.Value, len(p.Texts))
		}
	case KindOutput:
		if a.Value == 0 || a.Value > maxOutput {
			return fmt.Errorf("an output of %d bytes: it has 1 to %d", a.Value, maxOutput)
		}
	case KindOpenHow:
		if len(a.Text) != sizeofOpenHow-wordSize {
			return fmt.Errorf("a struct open_how with %d bytes behind the flags, want %d", len(a.Text), sizeofOpenHow-wordSize)
		}
	case KindMessage:
		if len(a.Text) == 0 || a.Value > math.MaxInt32 {
			return fmt.Errorf("a message of %d bytes with the descriptor %d: it has at least one byte", len(a.Text), a.Value)
		}
	case KindString:
		return noNUL(a.Text)
	case KindVector:
		return noNUL(a.List...)
	case KindFilter:
		if n := len(a.Text); n == 0 || n%sizeofSockFilter != 0 || n/sizeofSockFilter > maxFilter {
			return fmt.Errorf("a filter of %d bytes: it has 1 to %d instructions of %d bytes", n, maxFilter, sizeofSockFilter)
		}
	case KindResult:
		if a.Value >= uint64(step) || isMacro(p.Steps[a.Value].Call) {
			return fmt.Errorf("there is no result of an earlier step %d", a.Value)
		}
	case KindFile:
		if a.Value >= uint64(len(p.Files)) {
			return fmt.Errorf("there is no file %d; the program has %d", a.Value, len(p.Files))
		}
	case KindSync:
		if a.Value > 1 {
			return fmt.Errorf("there is no end %d of the rendezvous", a.Value)
		}
	default:
		return fmt.Errorf("unknown kind of argument %d", a.Kind)
	}
	return nil
}

// validateSharing rejects steps that would act on descriptors of the caller, or end the
// sharing.
func (p *Program) validateSharing() error {
	for i := range p.Steps {
		switch call := p.Steps[i].Call; call {
		case macroCloseOthers, "close_range", "dup3", "clone3", "execve", "execveat":
			return fmt.Errorf("step %d, %s: the program shares the descriptors of its caller, which it would change", i, visible(call))
		}
	}
	return nil
}

// isMacro reports whether a call stands for several.
func isMacro(call string) bool { return strings.HasPrefix(call, "@") }

func noNUL(list ...string) error {
	for _, s := range list {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("the string %s has a NUL byte in it, where the kernel would cut it off", quote(s))
		}
	}
	return nil
}

// validateDrop requires one constant: the set of capabilities to keep.
func validateDrop(s *Step) error {
	if err := validateCount(s.Args, 1); err != nil {
		return err
	}
	if s.Args[0].Kind != KindConst {
		return errors.New("the set of capabilities that are kept is not a constant")
	}
	return nil
}

func validateCount(args []Arg, n int) error {
	if len(args) != n {
		return fmt.Errorf("%d arguments, want %d", len(args), n)
	}
	return nil
}

// validateKept requires plain descriptor numbers.
func validateKept(args []Arg) error {
	for i, a := range args {
		if a.Kind != KindConst || a.Value >= fdMax {
			return fmt.Errorf("argument %d is not the number of a descriptor", i)
		}
	}
	return nil
}

// validateFork requires only the flags: the launcher adds the rest.
func validateFork(s *Step) error {
	if err := validateCount(s.Args, 1); err != nil {
		return err
	}
	if s.Args[0].Kind != KindConst {
		return errors.New("the flags are not a constant")
	}
	if s.Want != nil || len(s.Ignore) > 0 {
		return errors.New("a fork can neither be ignored nor have a wanted result")
	}
	return onlyNamespaces(s.Args[0].Value)
}

func onlyNamespaces(f uint64) error {
	const all = NewMount | NewCgroup | NewUTS | NewIPC | NewUser | NewPID | NewNetwork
	if rest := f &^ all; rest != 0 {
		return fmt.Errorf("the clone flags %#x do not make namespaces", rest)
	}
	return nil
}

// memoryOptions are the options of prctl that belong to the memory, so that they would change
// the caller's.
var memoryOptions = []uint64{prSetDumpable, prSetMM, prSetTHPDisable, prSetMDWE}

func validatePrctl(args []Arg) error {
	if len(args) == 0 || len(args) > maxArgs {
		return fmt.Errorf("%d arguments, want 1 to %d", len(args), maxArgs)
	}
	if args[0].Kind != KindConst {
		return errors.New("the option is not a constant")
	}
	if slices.Contains(memoryOptions, args[0].Value&0xffffffff) {
		return fmt.Errorf("the option %d changes the memory, which the child shares with the caller", args[0].Value)
	}
	return nil
}

// validateSeccomp rejects the flag that applies a filter to all threads. The child has only
// one, so the flag would be a mistake.
func validateSeccomp(args []Arg) error {
	if err := validateCount(args, 3); err != nil {
		return err
	}
	if args[1].Kind != KindConst || args[1].Value&1 != 0 {
		return errors.New("the flags are not a constant, or have SECCOMP_FILTER_FLAG_TSYNC")
	}
	return nil
}
