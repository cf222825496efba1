package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/policy"
)

func (a *app) policyTrust() *cobra.Command {
	return &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Trust a project's policy file as it is now",
		Long: `Trust a project's .cloche.yaml, so that it can add access, and show what it adds.
Trust is for this path and this content: a change ends it. Without FILE, it is the
file in force here.`,
		Example: "  cloche policy trust\n  cloche policy trust ./.cloche.yaml",
		Args:    args(0, 1, "FILE"),
		RunE:    onProjectFile(a.trust),
	}
}

func (a *app) policyUntrust() *cobra.Command {
	return &cobra.Command{
		Use:     "untrust [FILE]",
		Short:   "Stop trusting a project's policy file",
		Long:    "Stop trusting a project's .cloche.yaml. It can then only take access away.",
		Example: "  cloche policy untrust",
		Args:    args(0, 1, "FILE"),
		RunE:    onProjectFile(a.untrust),
	}
}

// onProjectFile calls do with the file that the argument names, or the one in force here.
func onProjectFile(do func(ctx context.Context, file string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		file, err := projectFile(args)
		if err != nil {
			return err
		}
		return do(c.Context(), file)
	}
}

// projectFile is the file that is meant, absolute.
func projectFile(args []string) (string, error) {
	if len(args) == 1 {
		if filepath.Base(args[0]) != config.ProjectFileName {
			return "", fmt.Errorf("%s: only a project's %s is trusted or not; files named by --policy always are", args[0], config.ProjectFileName)
		}
		return filepath.Abs(args[0])
	}
	cwd, err := workingFolder()
	if err != nil {
		return "", err
	}
	files, err := config.FindProjects(cwd, "")
	if len(files) > 0 {
		return files[0], err
	}
	if err == nil {
		err = fmt.Errorf("there is no %s in %s or above it; name a file", config.ProjectFileName, cwd)
	}
	return "", err
}

func (a *app) trust(ctx context.Context, file string) error {
	s := &sessionFlags{workspace: filepath.Dir(file)}
	session, l, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	read, ok := l.file(file)
	if !ok {
		return fmt.Errorf("%s: no such file", file)
	}
	if read.Trusted {
		fmt.Fprintf(a.out, "%s is trusted already\nsha256 %s\n", printable(read.Path), read.SHA256)
		return nil
	}
	for _, i := range l.asksFor() {
		fmt.Fprintf(a.out, "loosens  %s (%s)\n", printable(i.Text), printable(i.Origin.String()))
	}
	return a.recordTrust(l, read)
}

// asksFor is everything that an untrusted file would get if it were trusted.
// Whether a path is open to the policy already depends on the workspace of each
// run, so every path that the file opens is among them.
func (l *loaded) asksFor() []policy.Ignored {
	asks := slices.DeleteFunc(slices.Clone(l.Ignored), func(i policy.Ignored) bool { return i.Never })
	for _, r := range l.Policy.Paths {
		if r.Origin.Untrusted && r.Origin.Layer == policy.LayerProject && r.Access != policy.Hidden && !r.Protect {
			asks = append(asks, policy.Ignored{Text: r.Access.String() + " " + r.Path, Origin: r.Origin})
		}
	}
	return asks
}

// recordTrust trusts the content that was shown. Where the file was changed
// since, or the decision cannot be audited, the trust is taken back.
func (a *app) recordTrust(l *loaded, read config.File) error {
	store := config.OpenTrust(l.dirs.Data)
	t, err := store.Trust(read.Path)
	if err != nil {
		return err
	}
	if t.SHA256 != read.SHA256 {
		err = fmt.Errorf("%s changed meanwhile and is not trusted; run the command again", read.Path)
	} else {
		err = record(l.dirs, audit.Event{Kind: audit.Trust, Subject: read.Path, Verdict: "trust"})
	}
	if err != nil {
		_, undo := store.Untrust(read.Path)
		return errors.Join(err, undo)
	}
	fmt.Fprintf(a.out, "trusted  %s\nsha256   %s\n", printable(t.Path), t.SHA256)
	return nil
}

// file returns the policy file of that path.
func (l *loaded) file(path string) (config.File, bool) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return config.File{}, false
	}
	for _, f := range l.Files {
		if f.Path == filepath.Join(dir, filepath.Base(path)) {
			return f, true
		}
	}
	return config.File{}, false
}

func (a *app) untrust(_ context.Context, file string) error {
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	known, err := config.OpenTrust(dirs.Data).Untrust(file)
	if err != nil {
		return err
	}
	if !known {
		fmt.Fprintf(a.out, "%s was not trusted\n", printable(file))
		return nil
	}
	fmt.Fprintf(a.out, "no longer trusted  %s\n", printable(file))
	return record(dirs, audit.Event{Kind: audit.Trust, Subject: file, Verdict: "untrust"})
}
