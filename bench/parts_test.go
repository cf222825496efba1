package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/bench/internal/report"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func TestReplacePart(t *testing.T) {
	for _, part := range allParts {
		page := "# Title\n\n" + part.begin + "\nold\n" + part.end + "\n\nAfter.\n"
		got, err := part.replace(page, "\nnew\n")
		want := "# Title\n\n" + part.begin + "\n\nnew\n\n" + part.end + "\n\nAfter.\n"
		if err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		if again, err := part.replace(got, "new"); err != nil || again != want {
			t.Errorf("a second time gives %q, %v", again, err)
		}
		for _, broken := range []string{"no marker", part.begin + "\nno end", part.end + "\n" + part.begin + "\n"} {
			if _, err := part.replace(broken, "new"); err == nil {
				t.Errorf("no error for %q", broken)
			}
		}
	}
}

// A run that is written into the page has all tables of the parts that it replaces, and leaves the
// other part as it is.
func TestDocsParts(t *testing.T) {
	var rest []string
	for _, s := range scenarios() {
		if docsMain.has(s.name) {
			rest = append(rest, s.name)
		}
	}
	for _, c := range []struct {
		chosen []string
		want   []docsPart
	}{
		{[]string{changesName}, []docsPart{docsChanges}},
		{[]string{agentName}, []docsPart{docsAgent}},
		{rest, []docsPart{docsMain}},
		{append([]string{changesName}, rest...), []docsPart{docsMain, docsChanges}},
		{rest[1:], nil},
		{append([]string{changesName}, rest[1:]...), nil},
	} {
		got, err := docsParts(c.chosen)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%q: %v, %v", c.chosen, got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "page.md")
	page := docsMain.begin + "\nold\n" + docsMain.end + "\n" + docsChanges.begin + "\nold\n" + docsChanges.end + "\n"
	r := &report.Report{Tables: []report.Table{{Title: "One", Scenario: changesName}, {Title: "Two", Scenario: "rules"}}, Skipped: []report.Skip{{Name: "peer", Reason: "gone"}}}
	for _, c := range []struct {
		parts            []docsPart
		old, main, other int // how often there are the old text, the table of each part
	}{
		{[]docsPart{docsChanges}, 1, 0, 1}, {[]docsPart{docsMain}, 1, 1, 0}, {[]docsPart{docsMain, docsChanges}, 0, 1, 1},
	} {
		err := errors.Join(os.WriteFile(file, []byte(page), 0o644), updateDocs(file, c.parts, r))
		data, readErr := os.ReadFile(file)
		count := func(text string) int { return strings.Count(string(data), text) }
		if err != nil || readErr != nil || count("\nold\n") != c.old || count("### Two") != c.main || count("### One") != c.other || count("peer: gone") != 1 {
			t.Errorf("%v: %v, %v: %s", c.parts, err, readErr, data)
		}
	}
}

// The page that is shipped must be one that -update-docs can update.
func TestDocsHaveMarkers(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(docsFile)))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range allParts {
		if _, err := part.replace(string(page), "text"); err != nil {
			t.Error(err)
		}
	}
	for _, s := range scenarios() {
		if !strings.Contains(string(page), "`"+s.name+"`") {
			t.Errorf("%s does not explain the scenario %s", docsFile, s.name)
		}
	}
}

func TestScenarioNames(t *testing.T) {
	all, err := scenarioNames("")
	if err != nil || len(all) != len(scenarios()) {
		t.Errorf("all scenarios are %v, %v", all, err)
	}
	some, err := scenarioNames("memory, rules")
	if err != nil || !slices.Equal(some, []string{"memory", "rules"}) {
		t.Errorf("two scenarios are %v, %v", some, err)
	}
	if _, err := scenarioNames("memery"); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("an unknown scenario gives %v, which should name those that are known", err)
	}
}

func TestParseOptions(t *testing.T) {
	for _, bad := range [][]string{{"-rounds", "-1"}, {"extra"}, {"-scenarios", "none"}, {"-no-such-flag"}} {
		if _, err := parseOptions(bad, io.Discard); err == nil {
			t.Errorf("no error for %v", bad)
		}
	}
}

func TestPeakOf(t *testing.T) {
	got, err := peakOf("Name:\tsh\nVmPeak:\t    9999 kB\nVmHWM:\t    1580 kB\nVmRSS:\t      12 kB\n")
	if err != nil || got != 1580*1024 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "VmHWM:\tmuch\n", "VmHWM:\t12 pages\n"} {
		if _, err := peakOf(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestQuote(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	for _, word := range []string{"", "plain", "two words", "it's", "$HOME `id` \\ \"x\"", "a\nb"} {
		out, err := exec.Command(sh, "-c", "printf %s "+quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("the shell reads %q as %q, %v", word, out, err)
		}
	}
}

// The arguments of bubblewrap are in the order of depth, whatever the order of the
// plan, and empty folders are closed only when everything in them is in place.
func TestMounter(t *testing.T) {
	p := &plan.Plan{Paths: []plan.Path{
		{Path: "/home/a/ws/sub/lock", Source: "/home/a/ws/sub/lock", Kind: hostfs.File, Access: policy.Read},
		{Path: "/home/a/ws", Source: "/home/a/ws", Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/home", Content: plan.Empty, Kind: hostfs.Dir, Access: policy.Hidden},
		{Path: "/etc/shadow", Content: plan.Empty, Kind: hostfs.File, Access: policy.Hidden},
		{Path: "/proc", Content: plan.Proc},
		{Path: "/dev", Content: plan.Devices},
		{Path: "/tmp", Content: plan.Empty, Kind: hostfs.Dir, Access: policy.Write},
		{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
		{Path: "/later", Source: "/later", Kind: hostfs.Missing, Access: policy.Read, Protect: true},
		{Path: "/etc/hosts", Content: plan.Text, Text: "hello\n"},
		{Path: "/bin", Content: plan.Link, Target: "usr/bin"},
	}}
	m := &mounter{texts: t.TempDir()}
	if err := m.mounts(p); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(m.texts, "1")
	want := "--ro-bind / / --tmpfs /home --proc /proc --dev /dev --tmpfs /tmp --symlink usr/bin /bin " +
		"--ro-bind /dev/null /etc/shadow --ro-bind " + text + " /etc/hosts --bind /home/a/ws /home/a/ws " +
		"--bind /home/a/ws/sub /home/a/ws/sub --ro-bind /home/a/ws/sub/lock /home/a/ws/sub/lock --remount-ro /home"
	if got := strings.Join(m.args, " "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if data, err := os.ReadFile(text); err != nil || string(data) != "hello\n" {
		t.Errorf("the generated file holds %q, %v", data, err)
	}
}

func TestLabLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	l, err := newLab(options{dir: dir}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(l.secrets(), l.outside) {
		if !exists(path) {
			t.Errorf("%s was not made", path)
		}
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	expectEmpty(t, dir)
}

func expectEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left behind", e.Name())
	}
}
