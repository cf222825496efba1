package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/review"
)

func (a *app) reviewDiff() *cobra.Command {
	f := &reviewFlags{}
	var stat, merge, noPager bool
	c := &cobra.Command{
		Use:   "diff [flags] [PATH…]",
		Short: "Show changes line by line",
		Long: `Show changes line by line, in the format of git, so that git apply takes the output.
On a terminal there are colours, and the output goes through $PAGER, or less.
Binary files, and files of more than 8 MiB, are named only.

With --merge, a conflict is shown as what merging makes of the host's file. Where
both sides changed the same lines, these are between markers, as git has them: apply
the output with git apply, settle them in an editor, and discard the change.`,
		Example: `  cloche review diff
  cloche review diff --stat
  cloche review diff 'src/**'
  cloche review diff --merge config.yaml`,
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := pathArgs(args)
			if err != nil {
				return err
			}
			r, err := f.open(c.Context(), false)
			if err != nil {
				return err
			}
			defer r.Close()
			list, err := r.List(filter(paths), r.protect)
			if err == nil {
				err = unusedPath(paths)
			}
			if err != nil {
				return err
			}
			to, done := a.pager(noPager || a.json)
			d := &diffWriter{to: bufio.NewWriter(to), terminal: isTerminal(a.out), colour: wantsColour(a.out)}
			var errs []error // what cannot be read is left out
			for _, c := range list {
				of := diffsOf
				if merge && c.Conflict != "" {
					of = mergeDiffs
				}
				switch {
				case a.json:
					err = d.json(of, r.Review, c)
				case stat:
					err = d.stat(of, r.Review, c)
				default:
					err = d.change(of, r.Review, c)
				}
				if err != nil {
					errs = append(errs, err)
				}
			}
			if stat && !a.json {
				d.line("", fmt.Sprintf("%s, %d added and %d removed lines", plural(uint64(len(list)), "change"), d.added, d.removed))
			}
			errs = append(errs, d.to.Flush(), done())
			if !a.json && !stat {
				_ = r.Looked(list, len(paths) == 0) // without it, the next apply does not know
			}
			for _, c := range list {
				if c.NotMerged != "" {
					a.words.warn(c.Abs() + " is not merged: " + c.NotMerged)
				}
			}
			return errors.Join(errs...)
		},
	}
	f.add(c)
	boolFlag(c.Flags(), &stat, "stat", groupOutput, "print only the numbers of lines")
	boolFlag(c.Flags(), &merge, "merge", groupOutput, "show conflicts merged with the host's version")
	boolFlag(c.Flags(), &noPager, "no-pager", groupOutput, "do not start a pager")
	a.jsonFlag(c, "print JSON, one change per line, with its lines under patch")
	return c
}

// pager starts a pager if the output is a terminal. The returned function waits for it.
func (a *app) pager(off bool) (io.Writer, func() error) {
	none := func() error { return nil }
	if off || !isTerminal(a.out) {
		return a.out, none
	}
	argv := []string{"less", "-FRX"}
	if pager := os.Getenv("PAGER"); pager != "" {
		argv = []string{"/bin/sh", "-c", pager}
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	to, err := c.StdinPipe()
	if err != nil || c.Start() != nil {
		return a.out, none
	}
	return quietPipe{to}, func() error {
		_ = to.Close()
		_ = c.Wait() // a pager that ends early is no error
		return nil
	}
}

// A quietPipe leads to a pager, which may end before the output does.
type quietPipe struct{ io.Writer }

func (q quietPipe) Write(p []byte) (int, error) {
	_, _ = q.Writer.Write(p)
	return len(p), nil
}

// A diffWriter writes changes line by line. On a terminal, what could control it is escaped; elsewhere
// the lines are as they are in the files.
type diffWriter struct {
	to               *bufio.Writer
	terminal, colour bool
	added, removed   int
}

func (d *diffWriter) line(colour, text string) {
	text = strings.TrimSuffix(text, "\n")
	if d.terminal {
		for i, part := range strings.Split(text, "\n") {
			if i > 0 {
				_ = d.to.WriteByte('\n')
			}
			cells := strings.Split(part, "\t")
			for i := range cells {
				cells[i] = printable(cells[i])
			}
			d.coloured(colour, strings.Join(cells, "\t"))
		}
	} else {
		_, _ = d.to.WriteString(text)
	}
	_ = d.to.WriteByte('\n')
}

func (d *diffWriter) coloured(colour, text string) {
	if d.colour && colour != "" {
		text = colour + text + reset
	}
	_, _ = d.to.WriteString(text)
}

// A fileDiff is one side of a change against the other.
type fileDiff struct {
	header []string
	patch  *review.Patch // nil if there are no lines to show
}

// fileDiffs compares the sides of a change. A file that became a link is deleted and added, as in git.
func fileDiffs(c *review.Change, old, now review.Content) []fileDiff {
	shown := func(x review.Content) review.Content {
		if x.Type != review.File && x.Type != review.Link {
			return review.Content{} // git knows no folders
		}
		return x
	}
	old, now = shown(old), shown(now)
	switch {
	case !old.Exists && !now.Exists:
		return nil
	case old.Exists && now.Exists && old.Type != now.Type:
		return append(fileDiffs(c, old, review.Content{}), fileDiffs(c, review.Content{}, now)...)
	}
	f := fileDiff{header: review.Header(c, &old, &now)}
	if !old.IsBinary() && !now.IsBinary() {
		f.patch = review.NewPatch(old.Text, now.Text)
	}
	return []fileDiff{f}
}

func diffsOf(r *review.Review, c *review.Change) ([]fileDiff, error) {
	if c.NotCarried != "" {
		return nil, nil
	}
	old, now, err := r.Contents(c)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.Abs(), err)
	}
	return fileDiffs(c, old, now), nil
}

// mergeDiffs compares the host's file with its merge. A conflict that cannot be merged has no lines, and notes why.
func mergeDiffs(r *review.Review, c *review.Change) ([]fileDiff, error) {
	m, err := r.Merge(c)
	if err != nil {
		c.NotMerged = err.Error()
		return nil, nil //nolint:nilerr // it is noted
	}
	c.Overlaps = m.Overlaps
	side := func(text []byte, mode uint32) review.Content {
		return review.Content{Exists: true, Type: review.File, Text: text, Mode: mode, Size: int64(len(text))}
	}
	return fileDiffs(c, side(m.Host, c.OldMode), side(m.Text, m.Mode)), nil
}

// A differ compares the sides of a change.
type differ func(*review.Review, *review.Change) ([]fileDiff, error)

func (d *diffWriter) change(of differ, r *review.Review, c *review.Change) error {
	list, err := of(r, c)
	if err != nil {
		return err
	}
	d.files(list)
	return nil
}

// files writes whole files.
func (d *diffWriter) files(list []fileDiff) {
	for _, f := range list {
		d.header(f.header)
		if f.patch != nil {
			for _, h := range f.patch.Hunks {
				d.hunk(f.patch, h)
			}
		}
	}
}

// names writes changes as they are in the list.
func (d *diffWriter) names(list []*review.Change) {
	for _, c := range list {
		d.line(bold, printable(changeLetters[c.Kind]+"  "+changeWords(c, map[string]bool{c.Root: true})))
	}
}

func (d *diffWriter) header(lines []string) {
	for _, line := range lines {
		d.line(bold, line)
	}
}

func (d *diffWriter) hunk(p *review.Patch, h review.Hunk) {
	for i, line := range p.Lines(h) {
		colour := ""
		switch {
		case i == 0:
			colour = "\x1b[36m"
		case line[0] == '+':
			colour = green
		case line[0] == '-':
			colour = red
		}
		d.line(colour, line)
	}
}

func (d *diffWriter) stat(of differ, r *review.Review, c *review.Change) error {
	list, err := of(r, c)
	if err != nil {
		return err
	}
	added, removed, binary := 0, 0, false
	for _, f := range list {
		if f.patch == nil {
			binary = true
			continue
		}
		n, m := f.patch.Count()
		added, removed = added+n, removed+m
	}
	d.added, d.removed = d.added+added, d.removed+removed
	lines := fmt.Sprintf("+%d -%d", added, removed)
	if binary {
		lines = fmt.Sprintf("binary, %s -> %s", bytesText(c.OldSize), bytesText(c.Size))
	}
	d.line("", printable(changeLetters[c.Kind]+"  "+changeWords(c, map[string]bool{c.Root: true}))+"  "+lines)
	return nil
}

func (d *diffWriter) json(of differ, r *review.Review, c *review.Change) error {
	list, err := of(r, c)
	if err != nil {
		return err
	}
	out := struct {
		*review.Change
		Added   int    `json:"added"`
		Removed int    `json:"removed"`
		Binary  bool   `json:"binary,omitempty"`
		Patch   string `json:"patch,omitempty"`
	}{Change: c}
	var text bytes.Buffer
	for _, f := range list {
		if f.patch == nil {
			out.Binary = true
			continue
		}
		n, m := f.patch.Count()
		out.Added, out.Removed = out.Added+n, out.Removed+m
		for _, line := range f.header {
			text.WriteString(line + "\n")
		}
		for _, h := range f.patch.Hunks {
			for _, line := range f.patch.Lines(h) {
				text.WriteString(line)
			}
		}
	}
	out.Patch = text.String()
	line, err := json.Marshal(out)
	if err != nil {
		return err
	}
	_, _ = d.to.WriteString(plainJSON(string(line)) + "\n")
	return nil
}

// patchHelp explains the answers.
const patchHelp = `y - apply this
n - leave this in the review
a - apply this and the rest of the file
d - leave this and the rest of the file
q - leave this and everything after it
`

// choosePatches asks for each hunk of changed texts, and for each other change as a whole. It returns the texts of files of
// which a part was chosen, and all chosen changes. If f.merge is set, the hunks of a conflict are those of its merge.
func (a *app) choosePatches(r *openReview, list []*review.Change, f *applyFlags) (map[string]review.Patched, []*review.Change, error) {
	in := bufio.NewReader(a.in)
	d := &diffWriter{to: bufio.NewWriter(a.out), terminal: isTerminal(a.out), colour: wantsColour(a.out)}
	patched := map[string]review.Patched{}
	var chosen []*review.Change
	var refused []string // files that stay, which the command has made folders of
	for _, group := range together(list) {
		c := group[0]
		if slices.ContainsFunc(refused, func(file string) bool { return pathx.Within(file, c.Abs()) }) {
			continue
		}
		var diffs []fileDiff
		left := false
		for _, c := range group {
			of, err := chosenDiffs(r.Review, c, f)
			if err != nil {
				return nil, nil, err
			}
			left = left || of == nil
			diffs = append(diffs, of...)
		}
		if left {
			chosen = append(chosen, group...) // it is reported
			continue
		}
		if c.Type == review.Folder && c.Kind == review.Added && c.Unit == "" {
			continue // it comes with the files in it
		}
		whole := len(group) > 1 || c.Kind != review.Changed || c.Type != review.File || c.Was != "" || len(diffs) != 1 || diffs[0].patch == nil
		yes, quit, err := d.ask(in, group, diffs, whole)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case len(yes) > 0:
			chosen = append(chosen, group...)
			if !whole && len(yes) < len(diffs[0].patch.Hunks) {
				patched[c.Abs()] = review.Patched{Text: diffs[0].patch.With(yes), Of: c}
			}
		case c.Type == review.Folder && c.Was != "":
			refused = append(refused, c.Abs())
		}
		if quit {
			break
		}
	}
	return patched, chosen, nil
}

// together gathers the changes that are applied only together, in the order of the list.
func together(list []*review.Change) (groups [][]*review.Change) {
	at := map[string]int{}
	for _, c := range list {
		i, found := at[c.Whole()]
		if !found {
			i = len(groups)
			at[c.Whole()] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// chosenDiffs returns what applying a change would change, or nil if it would be left.
func chosenDiffs(r *review.Review, c *review.Change, f *applyFlags) ([]fileDiff, error) {
	var diffs []fileDiff
	var err error
	switch {
	case c.NotCarried != "":
		return nil, nil
	case c.Conflict != "" && f.merge:
		if diffs, err = mergeDiffs(r, c); c.Overlaps > 0 || c.NotMerged != "" {
			return nil, err
		}
	case c.Conflict != "" && !f.theirs:
		return nil, nil
	default:
		diffs, err = diffsOf(r, c)
	}
	if diffs == nil {
		diffs = []fileDiff{} // a folder has no lines
	}
	return diffs, err
}

// ask asks for a change, or for several that belong together. What is chosen as a whole counts as one hunk.
func (d *diffWriter) ask(in *bufio.Reader, group []*review.Change, diffs []fileDiff, whole bool) (yes []review.Hunk, quit bool, err error) {
	question := "Apply this change"
	hunks := []review.Hunk{{}}
	if whole {
		if len(group) > 1 || len(diffs) == 0 {
			d.names(group)
		}
		d.files(diffs)
	} else {
		d.header(diffs[0].header)
		hunks, question = diffs[0].patch.Hunks, "Apply this hunk"
	}
	if len(group) > 1 {
		question = "Apply these changes, which belong together"
	}
	for i := 0; i < len(hunks); i++ {
		if !whole {
			d.hunk(diffs[0].patch, hunks[i])
		}
		_, _ = d.to.WriteString(question + " [y,n,a,d,q,?]? ")
		if err := d.to.Flush(); err != nil {
			return nil, true, err
		}
		answer, err := in.ReadString('\n')
		if err != nil && (!errors.Is(err, io.EOF) || answer == "") {
			return yes, true, nil // no more answers is no
		}
		switch strings.TrimSpace(answer) {
		case "y":
			yes = append(yes, hunks[i])
		case "n":
		case "a":
			return append(yes, hunks[i:]...), false, nil
		case "d":
			return yes, false, nil
		case "q":
			return yes, true, nil
		default:
			_, _ = d.to.WriteString(patchHelp)
			i--
		}
	}
	return yes, false, nil
}
