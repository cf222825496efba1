package initprog

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// programs are the files that build.sh makes.
var programs = map[string]elf.Machine{
	"init_amd64.elf": elf.EM_X86_64, "init_arm64.elf": elf.EM_AARCH64,
	"launch_amd64.elf": elf.EM_X86_64, "launch_arm64.elf": elf.EM_AARCH64,
}

// TestReproducible rebuilds the programs and compares them with the embedded
// ones, byte by byte. Another compiler makes other bytes, so it has to be the
// one that init.toolchain names.
func TestReproducible(t *testing.T) {
	testenv.Need(t, "gcc", "x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc")
	dir := t.TempDir()
	if out, err := exec.Command("./build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	if !sameFile(t, "init.toolchain", dir) {
		const why = "the compilers here are not those that init.toolchain names"
		if strings.Contains(os.Getenv(testenv.ExpectVariable), "gcc") {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	for name := range programs {
		if !sameFile(t, name, dir) {
			t.Errorf("%s is not what build.sh makes of the sources: run build.sh", name)
		}
	}
}

func sameFile(t *testing.T, name, dir string) bool {
	t.Helper()
	a, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(a, b)
}

// TestStatic: nothing of the sandbox's own file tree takes part in loading pid 1.
func TestStatic(t *testing.T) {
	for name, machine := range programs {
		f, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Machine != machine || f.Type != elf.ET_EXEC {
			t.Errorf("%s: %v %v", name, f.Machine, f.Type)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static: it has %v", name, p.Type)
			}
			if p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
				t.Errorf("%s: %v is writable and executable", name, p.Type)
			}
		}
	}
}
