package denials

import (
	"strings"
	"testing"
)

// N1: the advice is about the program that asked, or about the agent that bubblewrap works for.
func TestWithoutNamespaces(t *testing.T) {
	shell, codex := []string{"bash", "-c", "x"}, []string{"/usr/bin/codex", "exec"}
	for _, c := range []struct {
		lines [][]string
		want  string
	}{
		{[][]string{{"/usr/lib/chromium/chromium", "--headless"}, shell, codex}, "start it with --no-sandbox"},
		{[][]string{{"/opt/google/chrome/chrome"}}, "start it with --no-sandbox"},
		{[][]string{{"podman", "run", "x"}}, "start the container outside"},
		{[][]string{{"bwrap", "--ro-bind"}, shell, codex, {"claude"}}, "cloche agent run codex"},
		{[][]string{{"bwrap"}, {"node", "/x/bin/claude"}}, "cloche agent run claude"},
		{[][]string{{"codex-linux-sandbox"}, codex}, "cloche agent run codex"},
		{[][]string{{"bwrap"}, shell}, "run it without bubblewrap"},
		{[][]string{{"bwrap"}, {"opencode"}}, "switch that off"}, // which makes none
		{[][]string{{"unshare", "-U"}, shell, codex}, "switch that off"},
	} {
		if got := WithoutNamespaces(c.lines); !strings.HasPrefix(got, "no option allows it; cloche confines ") || !strings.Contains(got, c.want) {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
	}
	for _, lines := range [][][]string{nil, {nil}, {{}}} {
		if got := WithoutNamespaces(lines); got != "no option allows it" {
			t.Errorf("%q: %q", lines, got)
		}
	}
}
