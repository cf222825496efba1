package cli

import (
	"fmt"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
)

// nestedNotice says where the records of a cloche go that runs inside of another
// sandbox: it cannot reach the log outside, which has the command that it is a
// part of.
func (l *loaded) nestedNotice() []plan.Notice {
	if !machine.Nested() {
		return nil
	}
	return []plan.Notice{{Kind: plan.NoticeWarning,
		Text: "inside of another sandbox of cloche: this one can only take away; its audit log is " + auditDir(l.dirs) + " and goes with the sandbox around it"}}
}

// writeInForce prints the policy that this process itself is held to.
func (a *app) writeInForce(asJSON bool) error {
	text, err := cloche.InForce()
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.out, inForceLines(text))
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}

// An inForceLine is a line of the policy in force.
type inForceLine struct {
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitempty"`
}

func inForceLines(text string) []inForceLine {
	lines := []inForceLine{}
	for line := range strings.Lines(text) {
		rule, origin, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t# ")
		kind, value, _ := strings.Cut(rule, " ")
		lines = append(lines, inForceLine{kind, value, origin})
	}
	return lines
}

// insideWords say in which sandbox this process runs, or nothing.
func insideWords() string {
	if !machine.Nested() {
		return ""
	}
	text, err := cloche.InForce()
	if err != nil {
		return "of another sandbox of cloche, whose policy cannot be read"
	}
	first, _, _ := strings.Cut(text, "\n")
	return "of another sandbox of cloche (" + strings.TrimPrefix(first, "sandbox ") + "): cloche explain --in-force shows its policy"
}
