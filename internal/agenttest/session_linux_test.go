package agenttest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// The page that shows the recorded session, and the marks around it.
const (
	sessionPage  = "../../docs/agents.md"
	sessionBegin = "<!-- session:begin -->\n"
	sessionEnd   = "<!-- session:end -->\n"
)

// N15 L6: the session that the page shows is one of a real Claude Code: it tries to read a key, gets the rule,
// asks, and reads the key after a person allowed that. Run the test with -update to record it again.
func TestRecordedSession(t *testing.T) {
	t.Parallel()
	forUser(t, false)
	b := newBox(t, "claude")
	key := filepath.Join(b.home, ".ssh", "deploy_key")
	write(t, key, "KEY OF THE TEST SERVER\n")
	b.configureServer(t)
	b.install(t)
	b.Play(
		Step{Command: "cat ~/.ssh/deploy_key"},
		Step{Tool: "mcp__cloche__request_grant", Input: map[string]any{"path": key, "access": "read", "reason": "to reach the test server"}},
		Step{Command: "cat ~/.ssh/deploy_key"},
	)
	ended := make(chan outcome, 1)
	go func() { ended <- b.outside(t) }()
	listed, id := b.awaitRequest(t)
	approved := b.cloche(t, 0, "approve", "yes", id, "--scope", "always")
	r := <-ended
	got := b.Results()
	if len(got) != 3 || strings.Contains(got[0], "KEY OF") || !strings.Contains(got[2], "KEY OF") {
		t.Fatalf("the model got %q; exit status %d, printed:\n%s%s", got, r.status, r.stdout, r.stderr)
	}
	var s strings.Builder
	s.WriteString(sessionBegin + "\n")
	show := func(head, text string) {
		fmt.Fprintf(&s, "    %s\n", head)
		for line := range strings.Lines(strings.TrimRight(text, "\n")) {
			s.WriteString("    " + strings.TrimRight(strings.TrimRight("  "+line, "\n"), " ") + "\n")
		}
		s.WriteString("\n")
	}
	show("Claude Code runs: cat ~/.ssh/deploy_key", got[0])
	show(`Claude Code calls: request_grant {"path":"`+key+`","access":"read","reason":"to reach the test server"}`, "")
	show("$ cloche approve list", listed)
	show("$ cloche approve yes "+id+" --scope always", approved)
	show("Claude Code gets the answer", got[1])
	show("Claude Code runs: cat ~/.ssh/deploy_key", got[2])
	s.WriteString(sessionEnd)
	text := strings.NewReplacer(b.ws, "/home/ana/project", b.home, "/home/ana", id, "k3xq7a").Replace(s.String())
	text = regexp.MustCompile(`another [0-9ms]+`).ReplaceAllString(text, "another 5m0s")
	if os.Geteuid() == 0 { // who finds a hidden folder empty, and may enter it
		text = strings.Replace(text, "No such file or directory", "Permission denied", 1)
	}
	page, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), sessionBegin)
	_, after, ends := strings.Cut(rest, sessionEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the session", sessionPage)
	}
	goldentest.Compare(t, sessionPage, before+text+after)
}

// awaitRequest waits for the request of the box, and returns what a person sees of it, and its id.
func (b *box) awaitRequest(t *testing.T) (listed, id string) {
	t.Helper()
	testenv.Eventually(t, "Claude Code asks", func() bool {
		for line := range strings.Lines(b.exec(t, nil, "cloche", "approve", "list").stdout) {
			if strings.Contains(line, b.home) { // others are of tests that run beside this one
				listed = line
			}
		}
		return listed != ""
	})
	return listed, strings.Fields(listed)[0]
}
