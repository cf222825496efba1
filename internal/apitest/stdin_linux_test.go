package apitest

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// F11: of a file that is its standard input a command takes what it reads, as it would
// without a sandbox, and the next one goes on from there.
func TestInputIsShared(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "sh")
	for name, option := range map[string]cloche.Option{"cold": nil, "warm": cloche.WithWarm(), "fast": cloche.WithWarmFast()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			opts := []cloche.Option{cloche.WithWorkspace(dir)}
			if option != nil {
				opts = append(opts, option)
			}
			s, err := cloche.Open(t.Context(), policy.Workspace(dir), opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			file := inputFile(t, dir)
			for _, c := range []struct {
				script, want string
				place        int64
			}{
				{"true", "", 0},
				{"read x; echo $x", "one\n", 4},
				{"read x; read y; echo $x $y", "two three\n", 14},
				{"head -c 100000 | wc -c", "100000\n", 100014},
				{"wc -c", "899986\n", 1000000},
				{"cat", "", 1000000},
			} {
				cmd := s.Command(t.Context(), "sh", "-c", c.script)
				var out bytes.Buffer
				cmd.Stdin, cmd.Stdout, cmd.Stderr = file, &out, os.Stderr
				err := cmd.Run()
				place, seekErr := file.Seek(0, io.SeekCurrent)
				if err != nil || seekErr != nil || out.String() != c.want || place != c.place {
					t.Errorf("%s: %q, at %d, want %q at %d: %v, %v", c.script, out.String(), place, c.want, c.place, err, seekErr)
				}
			}
		})
	}
}

// inputFile is a file with three lines and a megabyte.
func inputFile(t *testing.T, dir string) *os.File {
	t.Helper()
	name := filepath.Join(dir, "input")
	text := "one\ntwo\nthree\n"
	if err := os.WriteFile(name, []byte(text+strings.Repeat("x", 1000000-len(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
