// Package goldentest compares output with golden files that a person has read, and provides
// the recorded machines and policies that several packages use for that. It is for tests only.
//
// Running a test with -update rewrites its golden files. Read the diff before you commit it:
// mistakes show there.
package goldentest

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Compare fails the test if got differs from the golden file.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		write(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; make it with -update", err)
	}
	if diff := cmp.Diff(lines(string(want)), lines(got)); diff != "" {
		t.Errorf("%s differs (- golden, + now); if the change is wanted, run the test with -update:\n%s", file, head(diff))
	}
}

// maxDiff is how many lines of a diff are shown.
const maxDiff = 80

func head(diff string) string {
	all := lines(diff)
	if len(all) <= maxDiff {
		return diff
	}
	return strings.Join(all[:maxDiff], "\n") + "\n…"
}

// lines splits a text, so that a diff shows the lines that differ.
func lines(s string) []string { return strings.Split(s, "\n") }

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// OnlyThese fails the test if a folder of golden files contains one that no case compares any
// more.
func OnlyThese(t testing.TB, dir string, files map[string]bool) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if !files[f] {
			t.Errorf("%s belongs to no case; delete it", f)
		}
	}
}

// A Case is one policy on one recorded machine.
type Case struct {
	// Name is "MACHINE.POLICY".
	Name   string
	Host   *host.Snapshot
	Policy policy.Policy
	// Command is a program that the machine has.
	Command string
}

// Cases returns every recorded Linux machine with each of the policies "workspace", "strict"
// and "rich".
func Cases(t testing.TB) []Case {
	t.Helper()
	return slices.DeleteFunc(allCases(t), func(c Case) bool { return c.Host.OS != "linux" })
}

// MacCases is Cases for macOS.
func MacCases(t testing.TB) []Case {
	t.Helper()
	return slices.DeleteFunc(allCases(t), func(c Case) bool { return c.Host.OS != "darwin" })
}

func allCases(t testing.TB) []Case {
	t.Helper()
	var cases []Case
	files, err := filepath.Glob(filepath.Join(testdata(t), "hosts", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded machines: %v", err)
	}
	for _, f := range files {
		machine := strings.TrimSuffix(filepath.Base(f), ".json")
		for _, name := range []string{"workspace", "strict", "rich"} {
			s := readHost(t, f)
			dir := "/home/ana/project"
			if s.OS != "linux" {
				dir = s.Cwd
			}
			cases = append(cases, Case{Name: machine + "." + name, Host: s, Policy: readPolicy(t, name, dir), Command: "true"})
		}
	}
	return cases
}

// testdata returns the module's testdata folder.
func testdata(t testing.TB) string {
	t.Helper()
	// Tests run in the folder of their package. What runtime.Caller says is no path
	// after a build with -trimpath.
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata")
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no folder above this one has a go.mod")
		}
		dir = filepath.Dir(dir)
	}
}

func readHost(t testing.TB, file string) *host.Snapshot {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseRecorded(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// readPolicy reads testdata/policies/NAME.yaml as a file in dir, or returns the preset of that
// name.
func readPolicy(t testing.TB, name, dir string) policy.Policy {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata(t), "policies", name+".yaml"))
	if os.IsNotExist(err) {
		p, err := policy.FromPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err != nil {
		t.Fatal(err)
	}
	doc, err := policy.ParseIn(name+".yaml", dir, data)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A recorded machine is a Snapshot together with the files and variables that are not in the
// Snapshot's own JSON.
type recorded struct {
	host.Snapshot
	Env  map[string]string `json:"env"`
	Tree hostfs.Tree       `json:"tree"`
}

// ParseRecorded reads a machine recorded as JSON.
func ParseRecorded(data []byte) (*host.Snapshot, error) {
	var r recorded
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	s := r.Snapshot
	s.FS = r.Tree
	names := s.EnvNames
	var environ []string
	for n, v := range r.Env {
		environ = append(environ, n+"="+v)
	}
	sort.Strings(environ)
	s.SetEnviron(environ)
	if names != nil {
		s.EnvNames = names
	}
	return &s, nil
}
