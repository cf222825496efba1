package bwrap_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/resolve"
)

const argv = "testdata/argv"

// F11 A1 A2 A3: bubblewrap's arguments for each policy on each recorded
// machine, one option per line, as a person has looked at it; or why it cannot
// be used there (A11).
func TestGoldenOptions(t *testing.T) {
	files := map[string]bool{}
	for _, c := range goldentest.Cases(t) {
		file := filepath.Join(argv, c.Name+".txt")
		files[file] = true
		t.Run(c.Name, func(t *testing.T) { goldentest.Compare(t, file, optionText(t, c)) })
	}
	goldentest.OnlyThese(t, argv, files)
}

func optionText(t *testing.T, c goldentest.Case) string {
	t.Helper()
	p, err := resolve.Resolve(c.Policy, resolve.Request{Workspace: c.Host.Cwd, Name: c.Command}, c.Host)
	if err != nil {
		t.Fatal(err)
	}
	b := bwrap.New(bwrap.Config{}, nil)
	if err := b.Available(c.Host); err != nil {
		return "unavailable: " + err.Error() + "\n"
	}
	l, err := b.Compile(p, c.Host)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return launchText(l)
}

// launchText shows a launch: one option per line, with the source of each
// descriptor behind it.
func launchText(l *backend.Launch) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", l.Path, strings.Join(l.Argv[1:], " "))
	fmt.Fprintf(&b, "map-root %v\n\noptions\n", l.MapRoot)
	for i, word := range l.Options {
		switch {
		case strings.HasPrefix(word, "--"):
			b.WriteString("\n  " + word)
		case i > 0 && strings.HasSuffix(l.Options[i-1], "-fd") || i > 0 && l.Options[i-1] == "--ro-bind-data":
			b.WriteString(" " + word + descriptor(l, word))
		default:
			fmt.Fprintf(&b, " %s", word)
		}
	}
	list(&b, "must exist", l.MustExist)
	list(&b, "create", l.CreateDirs)
	var gaps []string
	for _, g := range l.Gaps {
		gaps = append(gaps, g.String())
	}
	list(&b, "gaps", gaps)
	return b.String()
}

func list(b *strings.Builder, title string, items []string) {
	fmt.Fprintf(b, "\n\n%s\n", title)
	for _, s := range items {
		b.WriteString("\n  " + s)
	}
	if title == "gaps" {
		b.WriteString("\n")
	}
}

// descriptor says what a descriptor of the launch is.
func descriptor(l *backend.Launch, number string) string {
	for i, f := range l.Files {
		if fmt.Sprint(l.FirstFD+i) != number {
			continue
		}
		switch {
		case f.Kind == backend.Source && f.Want == hostfs.Dir:
			return "(" + f.Path + "/)"
		case f.Kind == backend.Source:
			return "(" + f.Path + ")"
		case f.Kind == backend.Data:
			return "(data)"
		}
		return "(pipe)"
	}
	return "(NO SUCH DESCRIPTOR)"
}
