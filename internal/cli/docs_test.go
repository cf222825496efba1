package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloche-dev/cloche/policy"
)

// docPages are the pages of the documentation by name, with their text.
func docPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/coming-from/*.md", "docs/reference/*.md"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			pages[strings.TrimPrefix(file, "../../")] = string(text)
		}
	}
	return pages
}

var (
	docSpan    = regexp.MustCompile("`(cloche [^`\n]+)`")
	docTyped   = regexp.MustCompile(`(?m)^    (?:\$ )?(cloche [a-z].*)$`)
	docComment = regexp.MustCompile(` +# .*$`)
	docFence   = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")
	docOption  = regexp.MustCompile("`(--[a-z][a-z0-9-]*)[^`]*`")
)

// docCommands are the command lines of a page: those to be typed, and those that the
// text speaks of, which may lack arguments.
func docCommands(text string) (typed, spoken []string) {
	for _, m := range docTyped.FindAllStringSubmatch(text, -1) {
		typed = append(typed, docComment.ReplaceAllString(m[1], ""))
	}
	for _, m := range docSpan.FindAllStringSubmatch(text, -1) {
		spoken = append(spoken, m[1])
	}
	return typed, spoken
}

// Every command that a page has exists, with its flags, and takes its arguments.
func TestDocCommands(t *testing.T) {
	count := 0
	for page, text := range docPages(t) {
		typed, spoken := docCommands(text)
		count += len(typed) + len(spoken)
		for i, line := range slices.Concat(typed, spoken) {
			words, err := docWords(line)
			if err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
				continue
			}
			if _, ok := asShell(words[1:]); ok {
				continue
			}
			c, rest, err := Root().Find(words[1:])
			if err == nil && (c.HasSubCommands() && !c.Runnable() && len(rest) > 0 || c == Root()) {
				t.Errorf("%s: %s: there is no such command", page, line)
				continue
			}
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil && i < len(typed) {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d commands were found", count)
	}
}

// docWords are the words of a command line, as a shell has them. Nothing is
// substituted but quotes.
func docWords(line string) ([]string, error) {
	out, err := exec.Command("sh", "-fc", `unset HOME PWD ANTHROPIC_API_KEY; set -- `+line+`; printf '%s\0' "$@"`).Output()
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), err
}

// foreignOptions are options of other programs that a page speaks of: of bwrap, Chromium and Docker.
var foreignOptions = []string{"--no-sandbox", "--privileged", "--args", "--bind-fd", "--as-pid-1"}

// Every option that a page speaks of is one of some command of cloche's.
func TestDocOptions(t *testing.T) {
	known := map[string]bool{"--help": true}
	visitFlags(func(f *pflag.Flag) { known["--"+f.Name] = true })
	count := 0
	for page, text := range docPages(t) {
		for _, m := range docOption.FindAllStringSubmatch(text, -1) {
			count++
			if !known[m[1]] && !slices.Contains(foreignOptions, m[1]) {
				t.Errorf("%s: no command has %s", page, m[1])
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d options were found", count)
	}
}

// Every policy of a page is one, and its claims hold. A block of claims alone is about
// the policy before it.
func TestDocPolicies(t *testing.T) {
	count := 0
	for page, text := range docPages(t) {
		before := ""
		for _, m := range docFence.FindAllStringSubmatch(text, -1) {
			if m[1] != "yaml" {
				continue
			}
			count++
			block := m[2]
			if strings.HasPrefix(block, "tests:") {
				block = before + block
			}
			before = m[2]
			checkDocPolicy(t, page, block)
		}
	}
	if count < 8 {
		t.Errorf("only %d policies were found", count)
	}
}

func checkDocPolicy(t *testing.T, page, text string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Chdir(dir)
	if err := os.WriteFile("doc.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// The machine need not have the paths that a page names; the text has to be right.
	doc, err := policy.ParseIn("doc.yaml", dir, []byte(text))
	if err == nil {
		_, _, err = policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerCommand})
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", page, err, text)
	}
	var commands [][]string
	if strings.Contains("\n"+text, "\ntests:\n") {
		commands = append(commands, []string{"policy", "test", "--policy", "doc.yaml"})
	}
	for _, args := range commands {
		var out, words bytes.Buffer
		a := &app{out: &out, err: &words, words: newWords(&words)}
		if status := a.main(args); status != 0 {
			t.Errorf("%s: status %d of %s\n%s\n%s%s", page, status, args, text, out.String(), words.String())
		}
	}
}

// The rules of presets that pages quote are where the pages say that they are, with
// their reasons.
func TestDocOrigins(t *testing.T) {
	origin := regexp.MustCompile(`preset ([a-z-]+):(\d+)`)
	reason := regexp.MustCompile(`reason: ([^}]+)}`)
	setting := regexp.MustCompile(`^([a-z]+): ([a-z]+)$`)
	count := 0
	for page, text := range docPages(t) {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			for _, m := range origin.FindAllStringSubmatch(line, -1) {
				count++
				around := strings.Join(strings.Fields(strings.Join(lines[max(0, i-1):min(len(lines), i+3)], " ")), " ")
				rule := presetLine(t, m[1], m[2])
				why := reason.FindStringSubmatch(rule)
				if why == nil { // a setting, which has no reason
					why = setting.FindStringSubmatch(rule)
				}
				if why == nil || slices.ContainsFunc(why[1:], func(word string) bool { return !strings.Contains(around, word) }) {
					t.Errorf("%s:%d: that is not what is in line %s of the preset %s: %q", page, i+1, m[2], m[1], why)
				}
			}
		}
	}
	if count < 5 {
		t.Errorf("only %d rules of presets were found", count)
	}
}

// presetLine is a line of a preset.
func presetLine(t *testing.T, name, number string) string {
	t.Helper()
	text, err := policy.PresetSource(name)
	n, atoiErr := strconv.Atoi(number)
	lines := strings.Split(string(text), "\n")
	if err != nil || atoiErr != nil || n < 1 || n > len(lines) {
		t.Fatalf("preset %s:%s: %v, %v, %d lines", name, number, err, atoiErr, len(lines))
	}
	return lines[n-1]
}

// visitFlags calls do for the flags of every command.
func visitFlags(do func(*pflag.Flag)) {
	visit(Root(), func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(do)
		c.PersistentFlags().VisitAll(do)
	})
}
