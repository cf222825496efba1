package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// Bounds on what happens before main, which every run pays for. They leave room
// for other versions of Go, and none for another library that builds its tables
// when it is linked. The network stack takes a third of it.
const (
	maxInits      = 100
	maxInitBytes  = 120 << 10
	maxInitAllocs = 640
	// Of one package of this module.
	maxOwnBytes  = 2 << 10
	maxOwnAllocs = 24
)

// initLine is a line of GODEBUG=inittrace=1.
var initLine = regexp.MustCompile(`(?m)^init (\S+) @.*, (\d+) bytes, (\d+) allocs$`)

// N10: the command starts lean: what its packages do before main stays little, in
// numbers that do not depend on the machine.
func TestStartIsLean(t *testing.T) {
	testenv.Need(t, "go")
	var bytes, allocs int
	inits := traceInits(t)
	for _, m := range inits {
		b, a := number(t, m[2]), number(t, m[3])
		bytes, allocs = bytes+b, allocs+a
		if own := strings.HasPrefix(m[1], "github.com/cloche-dev/"); own && (b > maxOwnBytes || a > maxOwnAllocs) {
			t.Errorf("package %s makes %d bytes in %d pieces before main; make them when they are needed", m[1], b, a)
		}
	}
	if len(inits) < 10 {
		t.Fatalf("only %d packages were traced", len(inits))
	}
	if len(inits) > maxInits || bytes > maxInitBytes || allocs > maxInitAllocs {
		t.Errorf("%d packages make %d bytes in %d pieces before main, more than %d, %d and %d:\n%s",
			len(inits), bytes, allocs, maxInits, maxInitBytes, maxInitAllocs, lines(inits))
	}
}

// traceInits builds the command and returns what its packages did before main.
func traceInits(t *testing.T) [][]string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "cloche")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	var trace bytes.Buffer
	run := exec.Command(binary, "version")
	run.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	run.Stderr = &trace
	if err := run.Run(); err != nil {
		t.Fatal(err)
	}
	return initLine.FindAllStringSubmatch(trace.String(), -1)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func lines(inits [][]string) string {
	var b strings.Builder
	for _, m := range inits {
		b.WriteString(m[0] + "\n")
	}
	return b.String()
}
