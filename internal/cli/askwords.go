package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/internal/runoption"
)

// A choice is an answer to a question.
type choice struct {
	// word is what is typed. One that allows something comes after the code, and
	// may be empty.
	word, help string
	decision   grant.Decision
}

// choicesFor are the answers to a request. A secret is not given for good by one.
// Only some askers have a session that outlives the run.
func choicesFor(r grant.Request, session bool) []choice {
	list := []choice{{"", "yes, for this run", grant.Decision{Allow: true, Scope: grant.Once}}}
	if session {
		list = append(list, choice{"session", "yes, for all commands of the session that asks", grant.Decision{Allow: true, Scope: grant.Session}})
	}
	if !r.Secret {
		list = append(list, choice{"hour", "yes, for an hour in this workspace", grant.Decision{Allow: true, Scope: grant.Timed, For: time.Hour}},
			choice{"always", "yes, always in this workspace", grant.Decision{Allow: true, Scope: grant.Always}})
	}
	return append(list, choice{"no", "no (also Ctrl-C)", grant.Decision{}},
		choice{"none", "no, and to all else that this run asks for", grant.Decision{Rest: true}})
}

// choiceLine asks for one of them.
func choiceLine(list []choice, code, what string) string {
	var yes, other []string
	for _, c := range list {
		if c.decision.Allow {
			yes = append(yes, strings.TrimSpace(code+" "+c.word))
		} else {
			other = append(other, c.word)
		}
	}
	return fmt.Sprintf("allow%s? type %s; or %s, ?: ", what, strings.Join(yes, ", "), strings.Join(other, ", "))
}

// choiceHelp explains them.
func choiceHelp(list []choice) string {
	var b strings.Builder
	for _, c := range list {
		word := c.word
		if c.decision.Allow {
			word = strings.TrimSpace("CODE " + c.word)
		}
		fmt.Fprintf(&b, "  %-12s %s\r\n", word, c.help)
	}
	b.WriteString("  The code is the number in the question. It is another one each time, so that only you can know it.\r\n")
	return b.String()
}

// chosen is the decision that an answer stands for.
func chosen(list []choice, a console.Answer) (grant.Decision, bool) {
	for _, c := range list {
		if word := strings.ToLower(a.Text); c.decision.Allow == a.Coded && (word == c.word || word == "n" && c.word == "no") && (a.Coded || word != "") {
			return c.decision, true
		}
	}
	return grant.Decision{}, false
}

// lessHelp says what less is.
func lessHelp(r grant.Request) string {
	if r.Access == grant.Connect {
		return "give less: plain HTTP and a path of it, as in http://host/v1/**"
	}
	return "give less: a path below, or only reading"
}

// narrow reads what is to be given instead: a path below, "read", or both.
func (p *prompter) narrow(t *console.Prompt, q *question, old grant.Decision) grant.Decision {
	what := "a path below, read, or read and a path"
	if q.request.Access == grant.Connect {
		what = "plain HTTP and a path of it, as in http://host/v1/**"
	}
	fmt.Fprintf(t, "cloche: give only (%s; empty is all): ", what)
	text, err := t.Line(q.ctx)
	if err != nil {
		return old
	}
	var d grant.Decision
	rest, onlyRead := strings.CutPrefix(text+" ", "read ")
	if onlyRead && q.request.Access == grant.Write {
		d.Access = grant.Read
	} else {
		rest = text
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return d
	}
	if q.request.Access == grant.Connect {
		d.Host = rest
		return d
	}
	if d.Path, err = absolutePath(rest); err != nil {
		fmt.Fprintf(t, "cloche: %s\r\n", printable(err.Error()))
		return old
	}
	return d
}

// secretWarning says why to think twice.
func secretWarning(r grant.Request) string {
	if r.Access == grant.Connect {
		return "it is not on the public internet: what is there may trust this machine, and give out secrets"
	}
	return "it is hidden because it may hold secrets: whoever reads it can give it away"
}

// wants is what is asked for. The name of a file is quoted where it could be taken
// for another, or for words beside it.
func wants(r grant.Request) string {
	if r.Access == grant.Connect {
		return r.String()
	}
	return string(r.Access) + " " + fileName(r.Path)
}

// maxShown bounds what is shown of a name: the question has to fit on the screen.
const maxShown = 400

// cutMiddle shortens a line of printable text. Both its ends stay.
func cutMiddle(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return fmt.Sprintf("%s…(%d characters)…%s", string(r[:width/2]), len(r)-width, string(r[len(r)-width/2:]))
}

// maxCommand bounds what is shown of a command, which may hold a whole script.
const maxCommand = 300

func shortCommand(argv []string) string { return cut(printable(commandLine(argv)), maxCommand) }

// fileName is a name to be shown, or empty.
func fileName(p string) string {
	if p == "" {
		return ""
	}
	return cutMiddle(printable(runoption.Word(p)), maxShown)
}

// writeQuestion shows all that a person needs, with no control characters of
// whoever asks.
func writeQuestion(to io.Writer, r grant.Request) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(to, "  %-8s %s\r\n", name, cutMiddle(printable(value), maxShown+20))
		}
	}
	fmt.Fprintf(to, "cloche: %s wants to %s\r\n", cut(printable(asker(r)), maxCommand), cutMiddle(printable(wants(r)), maxShown+20))
	if r.Secret {
		fmt.Fprintf(to, "  WARNING  %s\r\n", secretWarning(r))
	}
	line("now for", fileName(r.File))
	line("but not", grant.KeptText(r.Keeps))
	line("command", shortCommand(r.Command))
	line("reason", r.Reason)
	line("rule", r.Rule)
}
