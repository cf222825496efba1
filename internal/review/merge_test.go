package review

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// mergeByGit merges as git does, with its default diff.
func mergeByGit(t *testing.T, original, host, command []byte) (text []byte, overlaps int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string][]byte{"host": host, "original": original, "command": command} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("git", "merge-file", "-p", "--diff3", "-L", hostSide, "-L", originSide, "-L", commandSide, "host", "original", "command")
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+dir)
	text, err := c.Output()
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() < 128 {
		return text, status.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return text, 0
}

// A randomText has lines that are all different, so that any two of its versions have one shortest diff.
type randomText struct {
	*rand.Rand
	n   int
	eol string
}

func (r *randomText) line() string {
	r.n++
	return fmt.Sprintf("line %d%s", r.n, r.eol)
}

// edited returns lines with some of them deleted, replaced or preceded by new ones.
func (r *randomText) edited(lines []string, often int) []string {
	var out []string
	for _, line := range lines {
		switch r.IntN(often) {
		case 0:
		case 1:
			out = append(out, r.line())
		case 2:
			out = append(out, r.line(), line)
		default:
			out = append(out, line)
		}
	}
	if r.IntN(often) == 0 {
		out = append(out, r.line())
	}
	return out
}

// text joins the lines, sometimes without the last newline.
func (r *randomText) text(lines []string) []byte {
	text := strings.Join(lines, "")
	if r.IntN(6) == 0 {
		text = strings.TrimSuffix(text, r.eol)
	}
	return []byte(text)
}

// A merge is what git merge-file makes of it, line by line and marker by marker.
func TestMergeAsGit(t *testing.T) {
	testenv.Need(t, "git")
	clean, overlapping := 0, 0
	for seed := range uint64(600) {
		r := &randomText{Rand: rand.New(rand.NewPCG(seed, 3)), eol: "\n"}
		if seed%5 == 0 {
			r.eol = "\r\n"
		}
		var lines []string
		for range r.IntN(60) {
			lines = append(lines, r.line())
		}
		often := 6 + r.IntN(60)
		hostLines, commandLines := r.edited(lines, often), r.edited(lines, often)
		if r.IntN(3) == 0 { // both have made some changes in the same way
			both := r.edited(lines, often)
			hostLines, commandLines = r.edited(both, 2*often), r.edited(both, 2*often)
		}
		original, host, command := r.text(lines), r.text(hostLines), r.text(commandLines)
		want, wantOverlaps := mergeByGit(t, original, host, command)
		got, overlaps := mergeLines(original, host, command)
		if overlaps == 0 {
			clean++
		} else {
			overlapping++
		}
		if overlaps != wantOverlaps || !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %q with the host's %q and the command's %q is\n%s\n(%d overlaps), git has\n%s\n(%d)",
				seed, original, host, command, got, overlaps, want, wantOverlaps)
		}
	}
	if clean < 100 || overlapping < 100 {
		t.Errorf("%d clean merges and %d with overlaps say little", clean, overlapping)
	}
}

// What any merge must fulfil, also of texts with few distinct lines, whose diffs are a matter of taste.
func TestMergeLaws(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	text := func() []byte {
		var b strings.Builder
		for range random.IntN(30) {
			b.WriteString(strings.Repeat("x", random.IntN(4)))
			if random.IntN(20) > 0 {
				b.WriteString("\n")
			}
		}
		return []byte(b.String())
	}
	for range 3000 {
		a, b, c := text(), text(), text()
		for what, got := range map[string][]byte{
			"the command's": merge(t, a, a, b), "the host's": merge(t, a, b, a), "that of both": merge(t, a, b, b),
		} {
			if !bytes.Equal(got, b) {
				t.Fatalf("of %q and %q the merge is not %s: %q", a, b, what, got)
			}
		}
		one, n := mergeLines(a, b, c)
		other, m := mergeLines(a, c, b)
		if n != m || n == 0 && !bytes.Equal(one, other) {
			t.Fatalf("the merge of %q and %q from %q depends on their order: %q, %q", b, c, a, one, other)
		}
		if marks := bytes.Count(one, []byte("<<<<<<< host")); marks != n || bytes.Count(one, []byte(">>>>>>> command")) != n {
			t.Fatalf("%d overlaps, %d markers: %q", n, marks, one)
		}
	}
}

func merge(t *testing.T, original, host, command []byte) []byte {
	t.Helper()
	text, overlaps := mergeLines(original, host, command)
	if overlaps > 0 {
		t.Fatalf("%q, %q and %q overlap", original, host, command)
	}
	return text
}

func TestMergeModes(t *testing.T) {
	for _, tt := range []struct {
		original, host, command, want uint32
		ok                            bool
	}{
		{0o644, 0o644, 0o644, 0o644, true},
		{0o644, 0o600, 0o644, 0o600, true},
		{0o644, 0o644, 0o755, 0o755, true},
		{0o644, 0o600, 0o600, 0o600, true},
		{0o644, 0o600, 0o755, 0, false},
	} {
		if got, ok := mergeModes(tt.original, tt.host, tt.command); got != tt.want || ok != tt.ok {
			t.Errorf("%03o, %03o, %03o: %03o, %t", tt.original, tt.host, tt.command, got, ok)
		}
	}
}
