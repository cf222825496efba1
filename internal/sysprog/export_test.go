package sysprog

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// The structs of interp.h have these numbers.
func TestExportLayout(t *testing.T) {
	for name, n := range map[string][2]int{
		"record size": {sizeofRecord, 96}, "number": {offsetNumber, 0}, "args": {offsetArgs, 8}, "indirect": {offsetIndirect, 56},
		"result": {offsetResult, 64}, "ignore": {offsetIgnore, 72}, "flags": {offsetFlags, 80}, "want": {offsetWant, 88},
		"wants": {recordWants, 2}, "xor": {numberXor, 0xffff}, "head": {sizeofHead, 96},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, and %d in interp.h", name, n[0], n[1])
		}
	}
	if magic := binary.LittleEndian.AppendUint64(nil, exportMagic); string(magic[:6]) != "cloche" {
		t.Errorf("the file begins with %q", magic)
	}
}

func exported(t *testing.T, p *Program, o ExportOptions) []byte {
	t.Helper()
	o.Arch = "amd64"
	e, err := ExportCommand(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The same program gives the same bytes, with everything in them.
func TestExportCommand(t *testing.T) {
	p := &Program{}
	b := p.For(policy.Origin{Source: "policy.yaml", Line: 12}, "go to /data")
	b.Chdir("/data")
	b.Call("chdir", p.AddText("folder"))
	b.Close(p.AddFile("file"))
	b.ExecveatArgv(FD(9))
	o := ExportOptions{Files: []int{7}, Texts: []string{"/text"}, Argv: []string{"name", "argument"}, CloneFlags: NewUser, Explain: "cloche: "}
	e := exported(t, p, o)
	for _, want := range []string{
		"/data\x00", "/text\x00", "name\x00", "argument\x00", "cloche: step 0, go to /data: chdir: \x00", " (rule policy.yaml:12)\x00", "ENOENT\x00", "CLONE_NEWUSER",
	} {
		if !bytes.Contains(e, []byte(want)) {
			t.Errorf("%q is missing", want)
		}
	}
	if !bytes.Equal(e, exported(t, p, o)) {
		t.Error("two exports differ")
	}
}

// What only Run can do is refused, and what does not fit.
func TestExportRefuses(t *testing.T) {
	simple := program1(func(b Block) { b.Exit(0) })
	for name, tt := range map[string]struct {
		p    *Program
		o    ExportOptions
		part bool
	}{
		"forks":           {p: program1(func(b Block) { b.Fork(NewPID); b.Exit(0) })},
		"hands back":      {p: program1(func(b Block) { b.ReportInode("/"); b.Exit(0) })},
		"files":           {p: simple, o: ExportOptions{Files: []int{1}}},
		"texts":           {p: simple, o: ExportOptions{Texts: []string{"x"}}},
		"NUL":             {p: simple, o: ExportOptions{Argv: []string{"\x00"}}},
		"flags":           {p: simple, o: ExportOptions{CloneFlags: cloneVM}},
		"descriptor":      {p: program1(func(b Block) { b.Close(b.p.AddFile("x")); b.Exit(0) }), o: ExportOptions{Files: []int{-1}}},
		"no end":          {p: program1(func(b Block) { b.Chdir("/") })},
		"part that waits": {p: program1(func(b Block) { b.SyncParent() }), part: true},
		"part with space": {p: program1(func(b Block) { b.Chdir("/") }), o: ExportOptions{CloneFlags: NewUser}, part: true},
	} {
		tt.o.Arch = "arm64"
		export := ExportCommand
		if tt.part {
			export = ExportPart
		}
		if _, err := export(tt.p, tt.o); err == nil {
			t.Errorf("%s: exported", name)
		}
	}
	if _, err := ExportPart(simple, ExportOptions{Arch: "riscv64"}); err == nil {
		t.Error("exported for an architecture that there is no interpreter for")
	}
}

func program1(build func(Block)) *Program {
	p := &Program{}
	build(p.For(policy.Origin{}, "test"))
	return p
}

// A part ends with its last step, not with one of ours.
func TestExportPart(t *testing.T) {
	p := program1(func(b Block) { b.Chdir("/"); b.Umask(0o22) })
	e, err := ExportPart(p, ExportOptions{Arch: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint64(e[headCount*wordSize:]); n != 2 || len(p.Steps) != 2 {
		t.Errorf("%d records, and the program has %d steps now", n, len(p.Steps))
	}
}

func TestBetween(t *testing.T) {
	for _, tt := range []struct {
		keep []int
		want [][2]int
	}{
		{nil, [][2]int{{0, fdMax}}},
		{[]int{0, 1, 2}, [][2]int{{3, fdMax}}},
		{[]int{5, 3, 3}, [][2]int{{0, 2}, {4, 4}, {6, fdMax}}},
	} {
		if got := between(tt.keep); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.keep, got, tt.want)
		}
	}
}

// A failed step has one text, whoever reports it.
func TestExportSaysTheSame(t *testing.T) {
	want := uint64(3)
	e := &StepError{Index: 4, Step: Step{Call: "read", Label: "label", Want: &want, Origin: policy.Origin{Source: "x", Line: 1}}, Errno: 2}
	before, after := e.around()
	if got := before + "ENOENT" + after; got != e.Error() || !strings.HasPrefix(got, "step 4, label: read: ") {
		t.Errorf("%q, %q", got, e.Error())
	}
}
