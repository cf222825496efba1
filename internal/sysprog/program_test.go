package sysprog

import (
	"encoding/binary"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; make it with -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if the change is wanted, run the test with -update. Now:\n%s", file, got)
	}
}

// F11, N10: the printable form of a whole sandbox.
func TestString(t *testing.T) {
	own := &sample{uid: 1000, gid: 1000, writable: "/data", argv: []string{"cloche-init", "3", "4"}}
	own.build()
	golden(t, "sandbox.txt", own.String())

	var p Program
	b := p.For(policy.Origin{}, "odd\nlabel\x1b[31m \xff")
	b.Ignoring(EEXIST, ENOSYS).Mkdirat(Cwd(), "a\nb", 0o755)
	b.SyncParent()
	b.Prlimit(7, "RLIMIT_NOFILE", 1024, ^uint64(0))
	b.Setns(p.AddFile("pid namespace"), NewPID)
	b.Fork(NewMount)
	b.Call("setgroups", Const(2), Bytes([]byte{1, 0, 0, 0, 2, 0, 0, 0}, "[1 2]"))
	b.Call("kill", Const(^uint64(0)), Const(1<<40))
	b.Sigmask(0)
	b.Exit(3)
	golden(t, "odd.txt", p.String())
}

func TestNumbersAreSorted(t *testing.T) {
	if !slices.IsSortedFunc(calls, func(a, b call) int { return strings.Compare(a.name, b.name) }) {
		t.Error("the table of calls is not sorted: calls in it would not be found")
	}
}

func TestOpenFlags(t *testing.T) {
	all := OpenDirectory | OpenNoFollow | OpenPath | OpenCloexec | OpenWrite
	if got := amd64.openFlags(all); got != uint64(all) {
		t.Errorf("amd64: %#x, want %#x", got, uint64(all))
	}
	if got, want := arm64.openFlags(all), uint64(0x4000|0x8000|0x200000|0x80000|1); got != want {
		t.Errorf("arm64: %#x, want %#x", got, want)
	}
	if got, want := arm64.openFlags(OpenDirect|OpenLargeFile), uint64(0x10000|0x20000); got != want {
		t.Errorf("arm64: %#x, want %#x", got, want)
	}
}

func TestValidate(t *testing.T) {
	bad := func(build func(p *Program, b Block)) *Program {
		p := &Program{}
		build(p, p.For(policy.Origin{}, ""))
		return p
	}
	for want, p := range map[string]*Program{
		"the program is empty": {},
		"has to end in execve": bad(func(_ *Program, b Block) { b.Setsid() }),
		"NUL byte":             bad(func(_ *Program, b Block) { b.Chdir("a\x00b"); b.Exit(0) }),
		"argument 1: the string": bad(func(_ *Program, b Block) {
			execve(b, "/bin/true", "a\x00b")
		}),
		"programs cannot make this call": bad(func(_ *Program, b Block) { b.Call("munmap"); b.Exit(0) }),
		"more than 6":                    bad(func(_ *Program, b Block) { b.Call("read", make([]Arg, 7)...); b.Exit(0) }),
		"no file 0": bad(func(_ *Program, b Block) {
			b.Close(Arg{Kind: KindFile})
			b.Exit(0)
		}),
		"no result of an earlier step 0": bad(func(_ *Program, b Block) { b.Close(Arg{Kind: KindResult}); b.Exit(0) }),
		"no result of an earlier step 1": bad(func(_ *Program, b Block) {
			b.Setsid()
			b.CloseOthers()
			b.Close(Arg{Kind: KindResult, Value: 1})
			b.Exit(0)
		}),
		"shares with the caller":   bad(func(_ *Program, b Block) { b.Prctl(prSetDumpable, "", 0); b.Exit(0) }),
		"the option is not":        bad(func(_ *Program, b Block) { b.Call("prctl", Str("")); b.Exit(0) }),
		"a filter of 7 bytes":      bad(func(_ *Program, b Block) { b.Seccomp(make([]byte, 7), 0); b.Exit(0) }),
		"a message of 0 bytes":     bad(func(_ *Program, b Block) { b.Call("sendmsg", FD(3), Arg{Kind: KindMessage}); b.Exit(0) }),
		"TSYNC":                    bad(func(_ *Program, b Block) { b.Seccomp(make([]byte, 8), 1); b.Exit(0) }),
		"forks more than once":     bad(func(_ *Program, b Block) { b.Fork(0); b.Fork(0); b.Exit(0) }),
		"do not make namespaces":   bad(func(_ *Program, b Block) { b.Fork(cloneVM); b.Exit(0) }),
		"neither be ignored":       bad(func(_ *Program, b Block) { b.Ignoring(EPERM).Fork(0); b.Exit(0) }),
		"number of a descriptor":   bad(func(_ *Program, b Block) { b.CloseOthers(-1); b.Exit(0) }),
		"unknown error number 999": bad(func(_ *Program, b Block) { b.Ignoring(999).Setsid(); b.Exit(0) }),
		"unknown kind":             bad(func(_ *Program, b Block) { b.Close(Arg{Kind: 99}); b.Exit(0) }),
		"no end 2":                 bad(func(_ *Program, b Block) { b.Close(Arg{Kind: KindSync, Value: 2}); b.Exit(0) }),
	} {
		err := p.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if _, loadErr := load(p, amd64); loadErr == nil {
			t.Errorf("%s: the program was loaded", want)
		}
	}
}

func TestStepError(t *testing.T) {
	want := uint64(1)
	rule := policy.Origin{Source: "policy.yaml", Line: 12}
	step := Step{Call: "move_mount", Label: "bind /data onto /data", Origin: rule}
	for text, err := range map[string]*StepError{
		"step 14, bind /data onto /data: move_mount: ENOENT (rule policy.yaml:12)":             {Index: 14, Step: step, Errno: syscall.Errno(ENOENT)},
		"step 14, bind /data onto /data: move_mount: killed by signal 9 (rule policy.yaml:12)": {Index: 14, Step: step, Signal: 9},
		"step 0, read: returned 0, want 1":                                                     {Step: Step{Call: "read", Want: &want}},
		"step 0, close_others: ENOSYS":                                                         {Step: Step{Call: macroCloseOthers}, Errno: syscall.Errno(ENOSYS)},
	} {
		if err.Error() != text {
			t.Errorf("got  %s\nwant %s", err, text)
		}
	}
	if err := error(&StepError{Step: step, Signal: 9}); errors.Unwrap(err) != nil {
		t.Errorf("an error without a number unwraps to %v", errors.Unwrap(err))
	}
	if filepath.Separator == '/' {
		if err := error(&StepError{Step: step, Errno: syscall.Errno(ENOENT)}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is not fs.ErrNotExist", err)
		}
	}
}

func TestCloneError(t *testing.T) {
	err := &CloneError{Flags: NewUser | NewPID, Errno: syscall.Errno(EPERM)}
	if got := err.Error(); !strings.Contains(got, "CLONE_NEWUSER|CLONE_NEWPID") || !strings.Contains(got, "EPERM: namespaces are refused") {
		t.Error(got)
	}
}

// Addresses in the memory point to what they should: the layout is followed like
// the kernel would.
func TestLayout(t *testing.T) {
	var p Program
	b := p.For(policy.Origin{}, "")
	fd := b.Openat(Cwd(), "/x", OpenDirectory, 0o600)
	b.Ignoring(EPERM).Seccomp(refuseFilter(), 0)
	b.Read(fd, 5)
	b.Fork(NewPID)
	execve(b, "/bin/sh", "sh", "-c", "true")
	for _, a := range []arch{amd64, arm64} {
		im, err := load(&p, a)
		if err != nil {
			t.Fatal(err)
		}
		text := func(at uint64) string {
			s, _, _ := strings.Cut(string(im.memory[at:]), "\x00")
			return s
		}
		arg := func(n, i int) uint64 { return im.get(offsetOf(n) + offsetArgs + i*wordSize) }
		for n, s := range p.Steps {
			if want, _ := a.number(s.Call); im.get(offsetOf(n)) != want {
				t.Errorf("%s: step %d has number %d, want %d", a, n, im.get(offsetOf(n)), want)
			}
		}
		if text(arg(0, 1)) != "/x" || arg(0, 2) != a.openFlags(OpenDirectory|OpenCloexec) || arg(0, 3) != 0o600 {
			t.Errorf("%s: openat is %q, %#x, %#o", a, text(arg(0, 1)), arg(0, 2), arg(0, 3))
		}
		prog := int(arg(1, 2))
		filter := im.get(prog + wordSize)
		if im.get(prog) != 8 || string(im.memory[filter:filter+64]) != string(refuseFilter()) {
			t.Errorf("%s: sock_fprog is wrong: %d instructions", a, im.get(prog))
		}
		ignore := im.get(offsetOf(1) + offsetIgnore)
		if got := binary.LittleEndian.Uint64(im.memory[ignore:]); got != ^uint64(0) || im.get(int(ignore)+wordSize) != 0 {
			t.Errorf("%s: the ignored result is %#x", a, got)
		}
		if im.get(offsetOf(2)+offsetIndirect) != 1 || arg(2, 0) != uint64(offsetOf(0)+offsetResult) || im.get(offsetOf(2)+offsetWant) != 5 {
			t.Errorf("%s: read does not use the result of openat", a)
		}
		const always = cloneVM | cloneVfork | cloneParent | cloneClearSighand
		forks := int(arg(3, 0))
		if im.get(forks+offsetCloneParentTID) != uint64(offsetForked) || im.get(forks) != always|cloneParentSetTID|NewPID || arg(3, 1) != sizeofCloneArgs {
			t.Errorf("%s: the fork has flags %#x", a, im.get(forks))
		}
		argv := int(arg(4, 1))
		if text(im.get(argv)) != "sh" || text(im.get(argv+16)) != "true" || im.get(argv+24) != 0 {
			t.Errorf("%s: argv is wrong", a)
		}
	}
}

// Whatever is in a program: it prints on one line for each step, and either does
// not validate or can be laid out.
func FuzzProgram(f *testing.F) {
	f.Add([]byte("execve\x00/bin/\xff\x03\x06\x07"))
	f.Add([]byte("@close_others\x00a\nb\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		call, rest, _ := strings.Cut(string(data), "\x00")
		text, kinds, _ := strings.Cut(rest, "\x00")
		p := Program{Files: []string{text}}
		step := Step{Call: call, Label: text, Ignore: []Errno{Errno(len(kinds))}}
		for i, k := range []byte(kinds) {
			step.Args = append(step.Args, Arg{Kind: Kind(k), Value: uint64(i), Text: text, List: []string{text}})
		}
		p.Steps = []Step{step, {Call: "exit_group"}}
		printed := p.String()
		if lines := strings.Count(printed, "\n"); lines != len(p.Steps) {
			t.Errorf("%d lines for %d steps:\n%s", lines, len(p.Steps), printed)
		}
		if !utf8.ValidString(printed) {
			t.Errorf("not UTF-8: %q", printed)
		}
		if p.Validate() == nil {
			if _, err := load(&p, arm64); err != nil {
				t.Errorf("valid, but: %v", err)
			}
		}
	})
}
