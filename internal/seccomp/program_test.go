package seccomp

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

var audits = map[string]uint32{"amd64": 0xc000003e, "arm64": 0xc00000b7}

// everyOptions returns all combinations of options for both architectures, and
// each with one of the sets of notifications; those that concern the same calls
// are combined with all of them.
func everyOptions() []Options {
	var list []Options
	for _, arch := range []string{"amd64", "arm64"} {
		for i := range 32 {
			list = append(list, Options{
				Arch: arch, AllowNamespaces: i&1 != 0, AllowSetuidBits: i&2 != 0,
				DenyInet: i&4 != 0, DenyUnix: i&8 != 0, DenyIPC: i&16 != 0, DenyOthers: i&16 != 0, Notify: Notify(i / 2 % 16),
			})
		}
		for i := range 64 {
			list = append(list, Options{Arch: arch, AllowSetuidBits: i&1 != 0, DenySetgidBits: i&2 != 0, OneOwner: i&2 != 0, UID: 1024, GID: 1040, Notify: Notify(i / 4)})
		}
	}
	return list
}

// names returns the table's names by number.
func names(arch string) map[uint32]string {
	m, _ := machineFor(arch)
	byNumber := map[uint32]string{}
	for _, e := range numbers {
		if n := m.pick(e); n != absent {
			byNumber[uint32(n)] = e.name
		}
	}
	return byNumber
}

// interesting are values on both sides of every comparison in the rules.
var interesting = []uint64{
	0, 1, 2, 3, 4, 5, 6, 8, 10, 11, 15, 16, 17, 38, 40, 58, 0x80, 0x100, 0x111, 0x40, 0x400000, 0x50f00, 0x100000,
	0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80000, 0x80001, 0x80802, 0x80005,
	0x60008, 0x40000, 0x400001, 0xffffffff, 0x5411, 0x5412, 0x5413, 0x541c, 0x5423, 0x1_00005412, 0xffffffff_0000541c,
	0o644, 0o755, 0o1777, 0o2755, 0o4755, 0o6755, 0o10644, 0o20644, 0o60600, 0o100644, 0o104755, 0o140755, 0o24755,
	35, 36, 37, 38, 39, 1024, 1040, 0x8000, 0x50009417, 0x40049409, 0xc0406618, 0x40186f04, 0x4020bc1e,
	132, 255, 256, 262, 0x10000_0002, 0x4000, 0x10000, 0x200000, 0x200041, 0x210000, 0x214000, 0o1000, 0o3000, 1 << 32, math.MaxUint64,
}

// argumentSets returns arguments that reach every branch of the filter: each
// interesting value in each place, and pairs where rules have two terms.
func argumentSets() [][6]uint64 {
	sets := [][6]uint64{{}}
	for _, v := range interesting {
		for arg := range 6 {
			var a [6]uint64
			a[arg] = v
			sets = append(sets, a)
		}
		for _, first := range []uint64{1, 2, 10, 16, 17, 0o100, 0o20200000, 0o1101} {
			sets = append(sets,
				[6]uint64{first, v, 0}, [6]uint64{first, 1, v}, [6]uint64{first, 0x80002, v},
				[6]uint64{0, first, v}, [6]uint64{0, 0, first, v})
		}
	}
	return sets
}

// Every number, every option and both sides of every comparison agree with a
// second, hand-written statement of the rules.
func TestProgramAgreesWithOracle(t *testing.T) { // N4
	sets := argumentSets()
	for _, o := range everyOptions() {
		program, byNumber := mustProgram(t, o), names(o.Arch)
		for n := uint32(0); n <= 600; n++ {
			name, tries := byNumber[n], sets
			expect, fixed := expectation(o, name)
			if fixed {
				tries = sets[:20]
			}
			for _, args := range tries {
				want := expect(args)
				if n > 471 {
					want = value(38)
				}
				if got := mustEvaluate(t, program, data{n, audits[o.Arch], args}); got != want {
					t.Fatalf("%+v: %d (%s) %x: got 0x%x, want 0x%x", o, n, name, args, got, want)
				}
			}
		}
	}
}

// The oracle itself must find something to deny in each rule, or the test
// above would prove nothing about it.
func TestEveryRuleCanDeny(t *testing.T) {
	sets := argumentSets()
	for _, o := range everyOptions() {
		m, _ := machineFor(o.Arch)
		denied := map[string]bool{}
		for _, r := range append(rulesFor(o), notifyRules(o, m)...) {
			for _, call := range r.calls {
				n, _ := m.number(call)
				if n != absent && !denied[call] && !happens(o, call, r.value(), sets) {
					t.Errorf("%+v: no arguments make %s return 0x%x (rule %q)", o, call, r.value(), r.Name)
				}
				denied[call] = denied[call] || len(r.terms) == 0
			}
		}
	}
}

func happens(o Options, call string, value uint32, sets [][6]uint64) bool {
	expect, _ := expectation(o, call)
	return slices.ContainsFunc(sets, func(args [6]uint64) bool { return expect(args) == value })
}

// The listener can be asked about exactly the calls that askedCalls names.
func TestNotified(t *testing.T) { // N1
	sets := argumentSets()
	for _, o := range everyOptions() {
		list, err := askedCalls(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names(o.Arch) {
			if got, want := slices.Contains(list, name), happens(o, name, asked, sets); got != want {
				t.Errorf("%+v: %s is in the list: %v, want %v", o, name, got, want)
			}
		}
	}
}

// A number means another call on another architecture: i386's 41 is dup, and
// its socketcall hides everything that the socket rules look at.
func TestForeignArchitectureIsKilled(t *testing.T) { // N4
	foreign := []uint32{0x40000003, 0x40000028, 0xc000003e, 0xc00000b7, 0, 0xffffffff}
	for _, o := range everyOptions() {
		program := mustProgram(t, o)
		for _, arch := range foreign {
			if arch == audits[o.Arch] {
				continue
			}
			for n := uint32(0); n <= 600; n++ {
				if got := mustEvaluate(t, program, data{number: n, arch: arch}); got != 0x80000000 {
					t.Fatalf("%+v: arch 0x%x, number %d: got 0x%x, want the process killed", o, arch, n, got)
				}
			}
		}
	}
}

// x32 sets bit 30 of the number; without a check every rule is passed by it.
func TestX32AndNewerCallsAreUnknown(t *testing.T) { // N4
	for _, o := range everyOptions() {
		program := mustProgram(t, o)
		for _, base := range []uint32{0x40000000, 0x80000000, 0xfffffe00, 472} {
			for n := base; n < base+0x1ff; n++ {
				if got := mustEvaluate(t, program, data{number: n, arch: audits[o.Arch]}); got != value(38) {
					t.Fatalf("%+v: number 0x%x: got 0x%x, want ENOSYS", o, n, got)
				}
			}
		}
	}
}

func TestUnknownArchitecture(t *testing.T) {
	_, err := Filter(Options{Arch: "riscv64"})
	if err == nil || !strings.Contains(err.Error(), `"riscv64"`) {
		t.Errorf("Filter for riscv64: error %v, want one that names it", err)
	}
}

// The filter must stay small: it is read on each start, and runs on each call
// whose arguments matter.
func TestSizeAndDepth(t *testing.T) {
	for _, o := range everyOptions() {
		program, byNumber := mustProgram(t, o), names(o.Arch)
		if most := 200 + 60*min(1, int(o.Notify)); len(program) > most {
			t.Errorf("%+v: %d instructions, want at most %d", o, len(program), most)
		}
		longest := 0
		for n := uint32(0); n <= 471; n++ {
			if byNumber[n] != "" {
				continue
			}
			_, steps, err := evaluate(program, data{number: n, arch: audits[o.Arch]})
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, steps)
		}
		if longest > 12 {
			t.Errorf("%+v: a call that no rule speaks of takes %d instructions, want at most 12", o, longest)
		}
	}
}

func TestFilterIsTheProgramInMemory(t *testing.T) {
	for _, o := range everyOptions() {
		first, err := Filter(o)
		if err != nil {
			t.Fatal(err)
		}
		second, _ := newFilter(o)
		if !bytes.Equal(first, second) {
			t.Fatalf("%+v: two filters differ", o)
		}
		for n, want := range mustProgram(t, o) {
			b := first[8*n:]
			got := Instruction{binary.LittleEndian.Uint16(b), b[2], b[3], binary.LittleEndian.Uint32(b[4:])}
			if got != want {
				t.Fatalf("%+v: instruction %d is %v in bytes, want %v", o, n, got, want)
			}
		}
	}
}

func TestGolden(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		var b strings.Builder
		for n, i := range mustProgram(t, Options{Arch: arch}) {
			fmt.Fprintf(&b, "%3d %v\n", n, i)
		}
		file := filepath.Join("testdata", arch+".golden")
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != strings.ReplaceAll(string(want), "\r\n", "\n") {
			t.Errorf("the filter for %s changed; if that is meant, run go test ./internal/seccomp -update\n%s", arch, b.String())
		}
	}
}

func FuzzProgram(f *testing.F) {
	f.Add(uint8(0), uint32(41), uint64(40), uint64(1), uint64(0), uint64(0))
	f.Add(uint8(1), uint32(257), uint64(0), uint64(0), uint64(0o100), uint64(0o4755))
	options := everyOptions()
	f.Fuzz(func(t *testing.T, pick uint8, n uint32, a0, a1, a2, a3 uint64) {
		o := options[int(pick)%len(options)]
		args := [6]uint64{a0, a1, a2, a3}
		want := value(38)
		if n <= 471 {
			expect, _ := expectation(o, names(o.Arch)[n])
			want = expect(args)
		}
		if got := mustEvaluate(t, mustProgram(t, o), data{n, audits[o.Arch], args}); got != want {
			t.Errorf("%+v: %d %x: got 0x%x, want 0x%x", o, n, args, got, want)
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	for b.Loop() {
		if _, err := newFilter(Options{Arch: "amd64"}); err != nil {
			b.Fatal(err)
		}
	}
}
