package seccomp

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Machine code of programs that make one call and end with its error as their
// status.
var (
	// getpid of i386, by the gate that a 64-bit program has too.
	codeI386 = []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20
		0xcd, 0x80, // int 0x80
		0x31, 0xff, // xor edi, edi
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
		0x0f, 0x05, // syscall
	}
	// getpid of x32.
	codeX32 = []byte{
		0xb8, 39, 0, 0, 0x40, // mov eax, 0x40000027
		0x0f, 0x05, // syscall
		0xf7, 0xd8, // neg eax
		0x89, 0xc7, // mov edi, eax
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
		0x0f, 0x05, // syscall
	}
)

// executable writes the smallest program that the kernel loads: an ELF header,
// one segment, and the code.
func executable(t *testing.T, code []byte) string {
	t.Helper()
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(code))
	var b bytes.Buffer
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: base + headers,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = 2, 1, 1
	segment := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base,
		Filesz: size, Memsz: size, Align: 0x1000,
	}
	for _, part := range []any{header, segment, code} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// The i386 entry kills: with it every rule could be walked around.
func TestI386EntryKills(t *testing.T) { // N4
	program := executable(t, codeI386)
	if r := child(t, childJob{Argv: []string{program}}); r.code != 0 {
		t.Skipf("no i386 entry without the filter either: status %d, signal %v: %s", r.code, r.signal, r.stderr)
	}
	if r := child(t, childJob{Options: &Options{}, Argv: []string{program}}); r.signal != syscall.SIGSYS {
		t.Errorf("status %d, signal %v, want SIGSYS: %s", r.code, r.signal, r.stderr)
	}
}

func TestX32EntryIsRefused(t *testing.T) { // N4
	program := executable(t, codeX32)
	if r := child(t, childJob{Options: &Options{}, Argv: []string{program}}); r.code != int(ENOSYS) {
		t.Errorf("status %d, signal %v, want %d: %s", r.code, r.signal, ENOSYS, r.stderr)
	}
}
