package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/console"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/internal/review"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// reviewFlags choose a review.
type reviewFlags struct {
	name      string
	workspace string
}

func (r *reviewFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	textFlag(f, &r.name, "name", "NAME", groupRun, "the review that run --review=NAME began (default: the only one of the workspace, or \"default\")")
	textFlag(f, &r.workspace, "workspace", "DIR", groupPaths, "the workspace of the review (default: as for run)")
}

func (a *app) reviewCommand() *cobra.Command {
	r := &reviewFlags{}
	c := &cobra.Command{
		Use:   "review [flags]",
		Short: "Look at what a run with --review changed, and apply or discard it",
		Long: `Look at what a run with --review changed, before it counts. Without a command, list
the changes: what was added, changed, deleted or renamed, conflicts with changes
of the host, and files that need their own yes because programs outside execute
them.

PATH is a file or folder, or a pattern such as '*.go' or 'src/**/*.ts'. A pattern
without a slash matches at any depth.`,
		Example: `  cloche run --review -- npm install
  cloche review
  cloche review diff
  cloche review apply package-lock.json
  cloche review discard`,
		Args: knownSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return a.listReview(c.Context(), r) },
	}
	r.add(c)
	a.jsonFlag(c, "print JSON, one change per line")
	c.AddCommand(a.reviewDiff(), a.reviewApply(), a.reviewDiscard(), a.reviewUndo(), a.reviewShell(), a.reviewStatus())
	return c
}

// An openReview is a review with what is needed to judge its changes.
type openReview struct {
	*review.Review
	protect review.Protect
	where   *loaded
	// running: a command has the review open, so it can only be looked at.
	running bool
}

// open opens the review that the flags choose. To change it, it has to be free.
func (r *reviewFlags) open(ctx context.Context, change bool) (*openReview, error) {
	s := &sessionFlags{workspace: r.workspace}
	l, err := s.load()
	if err != nil {
		return nil, err
	}
	store := review.Open(filepath.Join(l.dirs.State, "review"))
	name, err := chooseReview(store, l.workspace, r.name)
	if err != nil {
		return nil, err
	}
	o := &openReview{where: l}
	o.Review, err = store.Resume(l.workspace, name)
	if errors.Is(err, review.ErrInUse) {
		if change {
			return nil, fmt.Errorf("the review %s of %s: %w; wait until it ends, or stop it", name, l.workspace, err)
		}
		o.running = true
		o.Review, err = store.Look(l.workspace, name)
	}
	if errors.Is(err, review.ErrNone) {
		return nil, noReview(l.workspace, name)
	}
	if err != nil {
		return nil, err
	}
	if o.protect, err = protection(ctx, l); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func noReview(workspace, name string) error {
	return fmt.Errorf("there is no review %s of %s; begin one with: cloche run --review%s -- COMMAND", name, workspace, nameFlag(name))
}

// nameFlag is how run names a review.
func nameFlag(name string) string {
	if name == review.DefaultName {
		return ""
	}
	return "=" + name
}

// chooseReview returns the name of the review that is meant.
func chooseReview(store review.Store, workspace, name string) (string, error) {
	if name != "" {
		return name, review.CheckName(name)
	}
	all, err := store.Status()
	if err != nil {
		return "", err
	}
	var names []string
	for _, st := range all {
		if st.Workspace == workspace {
			names = append(names, st.Name)
		}
	}
	switch {
	case len(names) == 1:
		return names[0], nil
	case len(names) == 0 || slices.Contains(names, review.DefaultName):
		return review.DefaultName, nil
	}
	return "", fmt.Errorf("%s has the reviews %s; choose one with --name", workspace, strings.Join(names, ", "))
}

// protection says which files a program outside executes. It goes by the rules that protect in the policy of the workspace, and by
// those of the preset sinks, whatever the policy allows to be written.
func protection(ctx context.Context, l *loaded) (review.Protect, error) {
	own, err := planFor(ctx, l, l.Policy)
	if err != nil {
		return nil, err
	}
	rules := &plan.Plan{Globs: slices.Clone(own.Globs), Absent: own.Absent}
	if !slices.ContainsFunc(own.Globs, func(g plan.Glob) bool { return g.Origin.Source == "preset sinks" }) {
		sinks, err := policy.FromPreset("sinks")
		if err != nil {
			return nil, err
		}
		more, err := planFor(ctx, l, sinks)
		if err != nil {
			return nil, err
		}
		rules.Globs, rules.Absent = append(rules.Globs, more.Globs...), append(slices.Clone(rules.Absent), more.Absent...)
	}
	rules.Globs = slices.DeleteFunc(rules.Globs, func(g plan.Glob) bool { return g.Access != policy.Read })
	rules.Paths = []plan.Path{{Path: "/", Source: "/", Access: policy.Write, Content: plan.Host}}
	for _, line := range own.Paths {
		if line.Protect {
			rules.Paths = append(rules.Paths, line)
		}
	}
	files := judge.NewFiles(rules)
	return func(abs string) string {
		d := files.Path(abs)
		if d.Access == policy.Write {
			return ""
		}
		if d.Reason != "" {
			return d.Reason
		}
		return "the policy protects it"
	}, nil
}

func planFor(ctx context.Context, l *loaded, p policy.Policy) (*plan.Plan, error) {
	p.Remap = "" // paths are those of the host
	session, err := cloche.Open(ctx, p, l.options()...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	return session.Explain()
}

// A pathArg is a path or pattern of the command line.
type pathArg struct {
	text    string
	paths   []string
	pattern string
	used    bool
}

func pathArgs(args []string) ([]*pathArg, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = real
	}
	var list []*pathArg
	for _, text := range args {
		abs := text
		if !filepath.IsAbs(abs) {
			abs = filepath.Join(cwd, abs)
		}
		abs = filepath.Clean(abs)
		p := &pathArg{text: text, paths: []string{abs}}
		if dir, err := safeopen.RealPath(filepath.Dir(abs)); err == nil && abs != "/" {
			p.paths = append(p.paths, filepath.Join(dir, filepath.Base(abs)))
		}
		if pathx.IsGlob(text) {
			switch {
			case filepath.IsAbs(text):
				p.pattern = text
			case !strings.Contains(text, "/"):
				p.pattern = pathx.Quote(cwd) + "/**/" + text
			default:
				p.pattern = pathx.Quote(cwd) + "/" + text
			}
			if !pathx.ValidGlob(p.pattern) {
				return nil, fmt.Errorf("%q is no pattern: a bracket or brace is not closed", text)
			}
		}
		list = append(list, p)
	}
	return list, nil
}

func (p *pathArg) matches(abs string) bool {
	ok := p.pattern != "" && pathx.MatchGlob(p.pattern, abs)
	for _, path := range p.paths {
		ok = ok || pathx.Within(path, abs)
	}
	p.used = p.used || ok
	return ok
}

// filter makes a filter of paths; none of them is nil, which chooses everything.
func filter(list []*pathArg) review.Filter {
	if len(list) == 0 {
		return nil
	}
	return func(abs string) bool {
		found := false
		for _, p := range list {
			found = p.matches(abs) || found
		}
		return found
	}
}

// unusedPath is the error for a path at which there is no change.
func unusedPath(list []*pathArg) error {
	var errs []error
	for _, p := range list {
		if !p.used {
			errs = append(errs, fmt.Errorf("there is no change at %s; cloche review lists the changes", p.text))
		}
	}
	return errors.Join(errs...)
}

// reviewCommand is the command that shows a review.
func reviewCommand(name string) string {
	if name == policy.DefaultReview {
		return "cloche review"
	}
	return "cloche review --name " + name
}

func (a *app) listReview(ctx context.Context, r *reviewFlags) error {
	o, err := r.open(ctx, false)
	if err != nil {
		return err
	}
	defer o.Close()
	list, err := o.List(nil, o.protect)
	if err != nil {
		return err
	}
	if a.json {
		return printList(a, list, "", nil)
	}
	var b strings.Builder
	a.writeChanges(&b, list)
	if err := a.printText(b.String()); err != nil {
		return err
	}
	_ = o.Looked(list, true) // without it, the next apply does not know
	if o.running {
		a.words.warn("a command of this review still runs: the list may be incomplete")
	}
	return nil
}

// The letters of git for the kinds of changes.
var changeLetters = map[review.Kind]string{review.Added: "A", review.Changed: "M", review.Deleted: "D", review.Renamed: "R", review.Mode: "m"}

// writeChanges lists changes for people. A git directory is one line.
func (a *app) writeChanges(b *strings.Builder, list []*review.Change) {
	colour := wantsColour(a.out)
	var conflicts, protected, size int64
	units := map[string]int{}
	for _, c := range list {
		units[filepath.Join(c.Root, c.Unit)]++
	}
	shown := map[string]bool{}
	roots := map[string]bool{}
	for _, c := range list {
		roots[c.Root] = true
		size += c.Size
		if c.Conflict != "" {
			conflicts++
		}
		if c.Protected != "" {
			protected++
		}
	}
	for _, c := range list {
		line := changeLetters[c.Kind] + "  "
		switch unit := filepath.Join(c.Root, c.Unit); {
		case c.Unit != "" && shown[unit]:
			continue
		case c.Unit != "":
			shown[unit] = true
			line = "M  " + shortName(c, c.Unit, roots) + "/  (git directory, " + plural(uint64(units[unit]), "change") + ", applied as a whole)"
		default:
			line += changeWords(c, roots)
		}
		var marks []string
		if c.Conflict != "" {
			mark := "CONFLICT: " + c.Conflict
			if c.Mergeable {
				mark += " (apply --merge merges both)"
			}
			marks = append(marks, mark)
		}
		if c.Protected != "" {
			marks = append(marks, "PROTECTED: "+c.Protected)
		}
		if c.NotCarried != "" {
			marks = append(marks, "NOT CARRIED: "+c.NotCarried)
		}
		marks = append(marks, c.Notes...)
		line = printable(line)
		if len(marks) > 0 {
			text := printable(strings.Join(marks, "; "))
			if colour && (c.Conflict != "" || c.Protected != "" || c.NotCarried != "") {
				text = red + text + reset
			}
			line += "  " + text
		}
		b.WriteString(line + "\n")
	}
	if len(list) == 0 {
		b.WriteString("no changes\n")
		return
	}
	fmt.Fprintf(b, "%s, %s", plural(uint64(len(list)), "change"), bytesText(size))
	if conflicts > 0 {
		fmt.Fprintf(b, ", %s", plural(uint64(conflicts), "conflict"))
	}
	if protected > 0 {
		fmt.Fprintf(b, ", %d protected", protected)
	}
	b.WriteString("\n")
}

// shortName is a path as it can be typed in the only root, or the whole path.
func shortName(c *review.Change, rel string, roots map[string]bool) string {
	if len(roots) == 1 {
		return rel
	}
	return filepath.Join(c.Root, rel)
}

func changeWords(c *review.Change, roots map[string]bool) string {
	name := shortName(c, c.Path, roots)
	if c.Type == review.Folder {
		name += "/"
	}
	if c.From != "" {
		name = shortName(c, c.From, roots) + " -> " + name
	}
	switch {
	case c.Kind == review.Mode:
		return fmt.Sprintf("%s  (mode %03o, was %03o)", name, c.Mode, c.OldMode)
	case c.Was != "":
		return fmt.Sprintf("%s  (%s, was a %s)", name, c.Type, c.Was)
	case c.Type != review.File:
		if c.Type == review.Folder {
			return name
		}
		return name + "  (" + c.Type + ")"
	case c.Kind == review.Changed && c.Mode != c.OldMode:
		return fmt.Sprintf("%s  (%s, was %s; mode %03o, was %03o)", name, bytesText(c.Size), bytesText(c.OldSize), c.Mode, c.OldMode)
	case c.Kind == review.Changed:
		return fmt.Sprintf("%s  (%s, was %s)", name, bytesText(c.Size), bytesText(c.OldSize))
	case c.Kind == review.Deleted:
		return fmt.Sprintf("%s  (was %s)", name, bytesText(c.OldSize))
	case c.Kind == review.Renamed && c.Mode != c.OldMode:
		return fmt.Sprintf("%s  (mode %03o, was %03o)", name, c.Mode, c.OldMode)
	case c.Kind == review.Renamed:
		return name
	}
	return fmt.Sprintf("%s  (%s)", name, bytesText(c.Size))
}

func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// applyFlags are the flags of review apply.
type applyFlags struct {
	reviewFlags
	patch, ours, theirs, merge bool
	protected                  []string
}

func (a *app) reviewApply() *cobra.Command {
	f := &applyFlags{}
	c := &cobra.Command{
		Use:   "apply [flags] [PATH…]",
		Short: "Apply changes to the host",
		Long: `Apply changes to the host: all of them, or those at PATH. Each file is replaced
in one step. What was replaced is kept until the next apply, for cloche review undo.

A file that was changed on the host since is a conflict and is left alone, unless
--merge can merge both versions line by line, --theirs takes the command's version,
or --ours drops it. Where both changed the same lines nothing is merged: see
cloche review diff --merge. A protected file needs --allow-protected PATH, or your
yes on the terminal. What a command changed after you looked at the review is left
until you look again. The exit status is 1 if something was left.`,
		Example: `  cloche review apply
  cloche review apply package-lock.json 'src/**/*.ts'
  cloche review apply -p
  cloche review apply --merge
  cloche review apply --theirs config.yaml`,
		RunE: func(c *cobra.Command, args []string) error { return a.applyReview(c.Context(), f, args) },
	}
	f.add(c)
	flags := c.Flags()
	flags.VarPF(&flagValue{group: groupRun, set: func(string) error { f.patch = true; return nil }}, "patch", "p", "choose hunk by hunk").NoOptDefVal = "true"
	boolFlag(flags, &f.merge, "merge", groupRun, "in a conflict, merge both versions line by line")
	boolFlag(flags, &f.theirs, "theirs", groupRun, "in a conflict, take the command's version")
	boolFlag(flags, &f.ours, "ours", groupRun, "in a conflict, keep the host's version and drop the change")
	stringsFlag(flags, &f.protected, "allow-protected", "PATH", groupRun, "also apply protected files at PATH; may be repeated")
	a.jsonFlag(c, "print what was applied, and what was not, as JSON")
	return c
}

func (a *app) applyReview(ctx context.Context, f *applyFlags, args []string) error {
	if f.ours && f.theirs || f.merge && (f.ours || f.theirs) {
		return errors.New("--merge, --ours and --theirs exclude each other; choose one")
	}
	paths, err := pathArgs(args)
	if err != nil {
		return err
	}
	allowed, err := pathArgs(f.protected)
	if err != nil {
		return err
	}
	r, err := f.open(ctx, true)
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
	if f.ours {
		if list, err = a.keepOurs(r, list); err != nil {
			return err
		}
	}
	o := review.Options{Protect: r.protect, Theirs: f.theirs, Merge: f.merge, Seen: f.patch}
	if f.patch {
		if o.Patched, list, err = a.choosePatches(r, list, f); err != nil {
			return err
		}
	}
	want := map[string]bool{}
	for _, c := range list {
		want[c.Abs()] = true
	}
	o.Want = func(abs string) bool { return want[abs] }
	allow := func(abs string) bool {
		return slices.ContainsFunc(allowed, func(p *pathArg) bool { return p.matches(abs) })
	}
	yes, err := a.askProtected(ctx, list, allow)
	if err != nil {
		return err
	}
	o.Allow = func(abs string) bool { return allow(abs) || yes[abs] }
	done := a.words.progress("applying")
	out, err := r.Apply(o)
	done()
	return a.endWith("applied", out, err)
}

// endWith prints what became of changes, and ends with the status for it.
func (a *app) endWith(what string, out *review.Outcome, err error) error {
	if out == nil {
		return err
	}
	said := a.sayOutcome(what, out)
	if err != nil {
		return errors.Join(err, said)
	}
	return deniedUnless(out.All(), said)
}

// keepOurs drops changes that conflict with the host's.
func (a *app) keepOurs(r *openReview, list []*review.Change) ([]*review.Change, error) {
	drop := map[string]bool{}
	for _, c := range list {
		if c.Conflict != "" {
			drop[c.Abs()] = true
		}
	}
	if len(drop) == 0 {
		return list, nil
	}
	if _, err := r.Discard(func(abs string) bool { return drop[abs] }); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(c *review.Change) bool { return drop[c.Abs()] }), nil
}

// askProtected asks on the terminal for the yes that protected files need. Without a terminal there is none.
func (a *app) askProtected(ctx context.Context, list []*review.Change, allow review.Filter) (map[string]bool, error) {
	var ask []*review.Change
	for _, c := range list {
		if c.Protected != "" && c.NotCarried == "" && !allow(c.Abs()) {
			ask = append(ask, c)
		}
	}
	if len(ask) == 0 || a.json || !isTerminal(a.in) {
		return nil, nil
	}
	tty := console.Open()
	if tty == nil {
		return nil, nil
	}
	defer tty.Release()
	p, err := console.Start(ctx, tty)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	answer, err := p.Answer(ctx, func(code string) string {
		var b strings.Builder
		b.WriteString("Programs outside execute these files, or take commands from them:\n")
		const most = 20
		for _, c := range ask[:min(len(ask), most)] {
			b.WriteString("  " + printable(c.Abs()+": "+c.Protected) + "\n")
		}
		if len(ask) > most {
			fmt.Fprintf(&b, "  and %d more\n", len(ask)-most)
		}
		fmt.Fprintf(&b, "Look at them with cloche review diff. To apply them, too, type %s and yes: ", code)
		return b.String()
	})
	if errors.Is(err, console.ErrInterrupt) {
		return nil, errors.New("interrupted: nothing was applied")
	}
	if err != nil {
		return nil, err
	}
	yes := map[string]bool{}
	if answer.Coded && answer.Text == "yes" {
		for _, c := range ask {
			yes[c.Abs()] = true
		}
	}
	return yes, nil
}

// sayOutcome prints what became of changes.
func (a *app) sayOutcome(what string, out *review.Outcome) error {
	return a.print(out, func(b *strings.Builder) {
		left := func(list []*review.Change, why func(*review.Change) string) {
			for _, c := range list {
				b.WriteString(printable("left "+c.Abs()+": "+why(c)) + "\n")
			}
		}
		left(out.Conflicts, conflictWords)
		left(out.Protected, func(c *review.Change) string {
			return c.Protected + "; apply it with --allow-protected " + commandLine([]string{c.Abs()})
		})
		left(out.NotCarried, func(c *review.Change) string { return c.NotCarried })
		left(out.Unseen, func(c *review.Change) string {
			return "a command changed it after you looked at the review; look at it and repeat the apply: cloche review diff " + commandLine([]string{c.Abs()})
		})
		for _, f := range out.Failed {
			b.WriteString(printable("left "+f.Abs()+": "+f.Text) + "\n")
		}
		fmt.Fprintf(b, "%s %s", what, plural(uint64(len(out.Applied)), "change"))
		if n := out.Left(); n > 0 {
			fmt.Fprintf(b, ", left %d", n)
		}
		b.WriteString("\n")
	})
}

// conflictWords says why a conflict was left, and what settles it.
func conflictWords(c *review.Change) string {
	const sides = "--theirs takes the command's version, --ours drops it"
	switch {
	case c.Overlaps > 0:
		return fmt.Sprintf("%s, in %s that the command changed, too; cloche review diff --merge %s shows both; %s",
			c.Conflict, plural(uint64(c.Overlaps), "place"), commandLine([]string{c.Abs()}), sides)
	case c.NotMerged != "":
		return c.Conflict + ", and not merged: " + c.NotMerged + "; " + sides
	case c.Mergeable:
		return c.Conflict + "; --merge merges both, " + sides
	}
	return c.Conflict + "; " + sides
}

func (a *app) reviewDiscard() *cobra.Command {
	f := &reviewFlags{}
	c := &cobra.Command{
		Use:   "discard [flags] [PATH…]",
		Short: "Drop changes",
		Long: `Drop changes: those at PATH, or all of them and with them the review. The host's
files are not touched. The last apply can still be undone.`,
		Example: "  cloche review discard node_modules\n  cloche review discard '*.log'\n  cloche review discard",
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := pathArgs(args)
			if err != nil {
				return err
			}
			r, err := f.open(c.Context(), true)
			if err != nil {
				return err
			}
			defer r.Close()
			if len(paths) > 0 {
				if _, err := r.List(filter(paths), nil); err != nil {
					return err
				}
				if err := unusedPath(paths); err != nil {
					return err
				}
			}
			list, err := r.Discard(filter(paths))
			if err != nil {
				return err
			}
			what := plural(uint64(len(list)), "change")
			if len(list) == 0 && len(paths) == 0 {
				what = "the review" // there was nothing in it, or it could not be listed
			}
			return a.printText("discarded " + what + "\n")
		},
	}
	f.add(c)
	return c
}

func (a *app) reviewUndo() *cobra.Command {
	f := &reviewFlags{}
	c := &cobra.Command{
		Use:   "undo [flags]",
		Short: "Take the last apply back",
		Long: `Take the last apply back: the host's files are what they were, and the changes
are in the review again. A file that was changed since the apply stays as it is;
it is named, and the exit status is 1.`,
		Example: "  cloche review undo",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := f.open(c.Context(), true)
			if err != nil {
				return err
			}
			defer r.Close()
			out, err := r.Undo()
			return a.endWith("took back", out, err)
		},
	}
	f.add(c)
	a.jsonFlag(c, "print what was taken back, and what was not, as JSON")
	return c
}

func (a *app) reviewShell() *cobra.Command {
	f := &reviewFlags{}
	c := &cobra.Command{
		Use:   "shell [flags]",
		Short: "Start a shell that sees the changes",
		Long: `Start an interactive shell that continues in the review, as cloche shell
--review=NAME does: it sees the changes, and what it changes is in the review, too.`,
		Example: "  cloche review shell\n  cloche review shell --name upgrade",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			store, workspace, err := f.store()
			if err != nil {
				return err
			}
			name, err := chooseReview(store, workspace, f.name)
			if err != nil {
				return err
			}
			if r, err := store.Look(workspace, name); errors.Is(err, review.ErrNone) {
				return noReview(workspace, name)
			} else if err != nil {
				return err
			} else if err := r.Close(); err != nil {
				return err
			}
			shell := a.shellCommand()
			shell.SetArgs([]string{"--workspace", workspace, "--review=" + name})
			shell.SilenceErrors, shell.SilenceUsage = true, true
			return shell.ExecuteContext(c.Context())
		},
	}
	f.add(c)
	return c
}

// store returns the store of reviews and the workspace.
func (r *reviewFlags) store() (review.Store, string, error) {
	l, err := (&sessionFlags{workspace: r.workspace}).load()
	if err != nil {
		return review.Store{}, "", err
	}
	return review.Open(filepath.Join(l.dirs.State, "review")), l.workspace, nil
}

func (a *app) reviewStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status [flags]",
		Short: "List all your reviews",
		Long: `List all your reviews, the oldest first: the workspace, the name, the age, what
it takes on the disk, and whether a command of it runs.`,
		Example: "  cloche review status\n  cloche review status --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			dirs, err := machine.OwnDirs()
			if err != nil {
				return err
			}
			list, err := review.Open(filepath.Join(dirs.State, "review")).Status()
			if err != nil {
				return err
			}
			return printList(a, list, "there are no reviews", statusLine)
		},
	}
	a.jsonFlag(c, "print JSON, one review per line")
	return c
}

func statusLine(s *review.Status) string {
	line := fmt.Sprintf("%s  %s  %s old, %s in %s", printable(s.Workspace), s.Name, age(time.Since(s.Began)), bytesText(s.Size), plural(uint64(s.Files), "file"))
	if s.Running {
		line += ", a command runs"
	}
	if s.CanUndo {
		line += ", the last apply can be undone"
	}
	return line
}

// age is a time in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return plural(uint64(max(0, d/time.Second)), "second")
	case d < time.Hour:
		return plural(uint64(d/time.Minute), "minute")
	case d < 48*time.Hour:
		return plural(uint64(d/time.Hour), "hour")
	}
	return plural(uint64(d/(24*time.Hour)), "day")
}
