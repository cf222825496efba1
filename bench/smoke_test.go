package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// asProgram makes the test binary the program itself.
const asProgram = "CLOCHE_BENCH_TEST_MAIN"

// TestMain lets the test binary stand in for the two programs that a run needs:
// the measuring program, which moves to another home and so must not be the
// test's own process, and the command cloche.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "cloche":
		os.Exit(cli.Main(os.Args[1:]))
	case len(os.Args) > 1 && (os.Args[1] == helperWord || os.Args[1] == netClientWord || os.Args[1] == churnWord), os.Getenv(asProgram) != "":
		main()
	}
	os.Exit(m.Run())
}

// program returns the measuring program with everything it makes in dir.
func program(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cloche := filepath.Join(t.TempDir(), "cloche")
	if err := os.Symlink(self, cloche); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"-install=false", "-cloche", cloche, "-dir", dir}, args...)...)
	// Each process under the race detector would sleep a second at its end.
	// What is installed for agents calls the program in PATH.
	path := filepath.Dir(cloche) + ":" + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0", "PATH="+path)
	return cmd
}

// ratioRow is a row of a table that has a ratio: "| name | 1.23 (1.1–1.4) |".
func ratioRow(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\| \**` + name + `[^|]*\| [0-9.]+`)
}

func TestQuickRun(t *testing.T) {
	// The ratios of the network's tables are to these.
	testenv.Need(t, "bwrap", "overlayfs", "pasta", "slirp4netns", "socat", "nsenter")
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	dir, plot := t.TempDir(), filepath.Join(t.TempDir(), "plot.svg")
	cmd := program(t, dir, "-quick", "-rounds", "2", "-svg", plot)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	t.Logf("%s\n%s", out, stderr.Bytes())
	sections := strings.Split(string(out), "\n### ")
	if len(sections) < 2 || !strings.HasPrefix(sections[1], "Goals\n") || !strings.Contains(sections[1], "\n| `cloche run -- true` | 0.75 × bwrap | ") {
		t.Fatal("it does not say which goals were held")
	}
	sections = sections[2:]
	if len(sections) < len(scenarios()) {
		t.Fatalf("%d tables for %d scenarios", len(sections), len(scenarios()))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		if strings.Contains(section, "Scenario `network`") {
			checkNetworkTable(t, title, section)
			continue
		}
		if strings.Contains(section, "Scenario `agent`") {
			if !ratioRow(agentInstalled).MatchString(section) {
				t.Errorf("%q has no ratio for %s", title, agentInstalled)
			}
			continue
		}
		names := []string{"bwrap", "cloche run, bwrap"}
		if strings.Contains(section, "Scenario `review`") {
			names = []string{reviewWith}
			if strings.HasPrefix(title, "Listing") {
				names[0] = reviewList
			}
		}
		for _, name := range names {
			if !ratioRow(name).MatchString(section) {
				t.Errorf("%q has no ratio for %s", title, name)
			}
		}
	}
	for _, name := range []string{plainName, "library, bwrap", "session, bwrap"} {
		if !ratioRow(name).MatchString(sections[0]) {
			t.Errorf("%q has no ratio for %s", "one-shot", name)
		}
	}
	if svg, err := os.ReadFile(plot); err != nil || !bytes.Contains(svg, []byte("cloche run, bwrap")) {
		t.Errorf("the plot: %v, %d bytes", err, len(svg))
	}
	expectEmpty(t, dir)
}

// checkNetworkTable expects cloche's row with a ratio. The programs that ratios are
// to need the TUN device, which not every user can open; then there is the row.
func checkNetworkTable(t *testing.T, title, section string) {
	t.Helper()
	name, needsTUN := "cloche, veth", true
	if strings.Contains(title, "proxy inside") {
		name, needsTUN = "cloche, proxy", false
	}
	row := ratioRow(name)
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
		f.Close()
	} else if needsTUN {
		row = regexp.MustCompile(`(?m)^\| \**` + name)
	}
	if !row.MatchString(section) {
		t.Errorf("%q has no ratio for %s", title, name)
	}
}

// A run that is interrupted in the middle of a measurement removes what it made.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := t.TempDir()
	cmd := program(t, dir, "-quick", "-rounds", "100000", "-scenarios", "one-shot")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, measuring := "", false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said += lines.Text() + "\n"
		if !measuring && strings.Contains(lines.Text(), "Starting") {
			measuring = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if !measuring {
		t.Fatalf("it never began: %v\n%s", err, said)
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("status %d, want 130; it said\n%s", code, said)
	}
	expectEmpty(t, dir)
}
