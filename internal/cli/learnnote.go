package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/internal/learn"
	"github.com/cloche-dev/cloche/internal/safeopen"
)

// note adds what a run was refused to what is known. It reports whether another
// run would have more; again says whether there will be one.
func (l *lesson) note(r *cloche.Result, again bool) (more bool, err error) {
	f := &l.file
	f.Allows = r.Allows
	q := learnQuestions{}
	defer q.close()
	for _, n := range f.Needs(r.Denied) {
		if l.known(&n) {
			continue
		}
		given, err := l.agree(&n, &q)
		if err != nil {
			return false, err
		}
		switch {
		case given:
			if err := l.prepare(&n); err != nil {
				return false, err
			}
			f.Given = append(f.Given, n)
			more = true
			l.sayNeed("opened", &n)
		case n.Class == learn.Plain && !l.asks:
			f.Proposed = append(f.Proposed, n)
			l.sayNeed("written, not tried", &n)
		default:
			f.Left = append(f.Left, n)
			l.sayNeed("left out", &n)
		}
	}
	f.Given = f.Fold(learn.Ports(f.Given, r.Connections))
	if more && !again {
		l.words.warn("learn: there would be another run; the policy has not been tried as it is")
	}
	return more && again, nil
}

// known reports whether a need has been dealt with.
func (l *lesson) known(n *learn.Need) bool {
	f := &l.file
	return slices.ContainsFunc(slices.Concat(f.Given, f.Proposed, f.Left), func(o learn.Need) bool { return o.Covers(n) })
}

// agree asks whoever has a say whether the next run may have something.
func (l *lesson) agree(n *learn.Need, q *learnQuestions) (bool, error) {
	switch {
	case n.Class == learn.Closed:
		return false, nil
	case n.Class == learn.Safe, n.Named(l.include), n.Class == learn.Plain && l.flags.yes:
		return true, nil
	case !l.asks:
		return false, nil
	}
	return l.ask(n, q)
}

// learnQuestions are those after one run.
type learnQuestions struct {
	tty *console.TTY
	end bool // nobody answers any more
}

func (q *learnQuestions) close() {
	if q.tty != nil {
		q.tty.Release()
	}
}

// ask asks the person at the terminal. Everything but a yes is a no.
func (l *lesson) ask(n *learn.Need, q *learnQuestions) (bool, error) {
	if q.tty == nil && !q.end {
		q.tty = console.Open()
	}
	if q.end = q.end || q.tty == nil; q.end {
		return false, nil
	}
	prompt, err := console.Start(l.ctx, q.tty)
	if err != nil {
		return false, fmt.Errorf("learn: ask on the terminal: %w", err)
	}
	defer prompt.Close()
	fmt.Fprintf(prompt, "cloche: learn: %s\r\n", printable(l.needLine(n)))
	a, err := prompt.Answer(l.ctx, func(code string) string { return "allow it? type " + code + "; or just Enter for no: " })
	if errors.Is(err, io.EOF) || errors.Is(err, console.ErrInterrupt) {
		q.end = true
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("learn: read the answer: %w", err)
	}
	return a.Coded && a.Text == "", nil
}

// prepare makes the folder that a rule is about. The command would have made it,
// and a rule can only open what is there. A link that the command has put on the
// way since is not followed.
func (l *lesson) prepare(n *learn.Need) error {
	if !n.Missing || n.Kind != learn.Write {
		return nil
	}
	if real, err := safeopen.RealPath(n.Path); err != nil || real != n.Path {
		return fmt.Errorf("learn: the path of the folder %s changed while the command ran, so it is not made; run the command again", n.Path)
	}
	if err := os.MkdirAll(n.Path, 0o700); err != nil {
		return fmt.Errorf("learn: make the folder that the command needs: %w", err)
	}
	return nil
}

func (l *lesson) sayNeed(what string, n *learn.Need) {
	l.words.say(yellow, "learn: "+what+": "+l.needLine(n))
}

func (l *lesson) needLine(n *learn.Need) string {
	line := string(n.Kind) + " " + n.Subject()
	if len(n.Programs) > 0 {
		line += ", for " + strings.Join(n.Programs, ", ")
	}
	if n.Why != "" {
		line += ": " + n.Why
	}
	return line
}

// included makes the paths of --include absolute; what is no path is a host.
func included(list []string) ([]string, error) {
	var out []string
	for _, name := range list {
		if _, err := os.Lstat(name); err != nil && !strings.ContainsAny(name[:min(1, len(name))], "/~.") {
			out = append(out, name)
			continue
		}
		abs, err := absolutePath(name)
		if err != nil {
			return nil, fmt.Errorf("--include %s: %w", name, err)
		}
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			abs = real
		}
		out = append(out, filepath.ToSlash(abs))
	}
	return out, nil
}
