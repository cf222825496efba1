package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cloche-dev/cloche/grant"
)

const promptHelp = `  y  yes, for this run          a  yes, always in this workspace
  s  yes, for this session      n  no (also Ctrl-C)
  t  yes, for an hour           x  no, and to all else that this run asks for
  e  give less: `

// lessHelp says what less is.
func lessHelp(r grant.Request) string {
	if r.Access == grant.Connect {
		return "plain HTTP and a path of it, as in http://host/v1/**"
	}
	return "a path below, or only reading"
}

// narrow reads what is to be given instead: a path below, "read", or both.
func (p *prompter) narrow(t console, q *question, old grant.Decision) grant.Decision {
	what := "a path below, read, or read and a path"
	if q.request.Access == grant.Connect {
		what = lessHelp(q.request)
	}
	fmt.Fprintf(t, "cloche: give only (%s; empty is all): ", what)
	text, err := readLine(q.ctx, t)
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

// maxLine bounds a line that is typed.
const maxLine = 4096

// readLine reads a line key by key, with an echo. Ctrl-C gives it up.
func readLine(ctx context.Context, t console) (string, error) {
	var line []byte
	for len(line) < maxLine {
		key, err := t.Key(ctx)
		if err != nil {
			return "", err
		}
		switch {
		case key == '\r' || key == '\n':
			fmt.Fprint(t, "\r\n")
			return string(line), nil
		case key == 3 || key == 27:
			fmt.Fprint(t, "\r\n")
			return "", context.Canceled
		case key == 127 || key == 8:
			if len(line) > 0 {
				line = line[:len(line)-1]
				fmt.Fprint(t, "\b \b")
			}
		case key >= ' ':
			line = append(line, key)
			_, _ = t.Write([]byte{key})
		}
	}
	return string(line), nil
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
	return string(r.Access) + " " + shellWord(r.Path)
}

// maxCommand bounds what is shown of a command, which may hold a whole script.
const maxCommand = 300

func shortCommand(argv []string) string { return cut(printable(commandLine(argv)), maxCommand) }

// fileName is a name to be shown, or empty.
func fileName(p string) string {
	if p == "" {
		return ""
	}
	return shellWord(p)
}

// writeQuestion shows all that a person needs, with no control characters of
// whoever asks.
func writeQuestion(to io.Writer, r grant.Request) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(to, "  %-8s %s\r\n", name, printable(value))
		}
	}
	fmt.Fprintf(to, "cloche: %s wants to %s\r\n", printable(asker(r)), printable(wants(r)))
	if r.Secret {
		fmt.Fprintf(to, "  WARNING  %s\r\n", secretWarning(r))
	}
	line("now for", fileName(r.File))
	line("but not", grant.KeptText(r.Keeps))
	line("command", shortCommand(r.Command))
	line("reason", r.Reason)
	line("rule", r.Rule)
}
