package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func (a *app) policyCommand() *cobra.Command {
	c := group("policy", "Show, check and trust policies",
		`Look at policies and check them.

A policy has layers: presets, the user's file (policy.yaml in cloche's configuration
folder), the project's .cloche.yaml, and the command line. A project's file can take
access away. It can add access only after you trusted its exact content.`,
		"  cloche policy show\n  cloche policy validate .cloche.yaml\n  cloche policy presets")
	c.AddCommand(a.policyShow(), a.policyValidate(), a.policyTest(), a.policySchema(), a.policyPresets(), a.policyTrust(), a.policyUntrust())
	return c
}

func (a *app) policyValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate [FILE…]",
		Short: "Check policy files",
		Long: `Check policy files and name everything that is wrong with them, with file, line
and column: their text, and what of it cannot be used on this machine, such as
a path that does not exist. Without a file, those in force here are checked.

The exit status is 0 if they are all in order, 125 if not.`,
		Example: "  cloche policy validate\n  cloche policy validate .cloche.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.validateInForce(c.Context())
			}
			var errs []error
			for _, name := range args {
				if err := validateFile(c.Context(), name); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(a.out, "%s: ok\n", printable(name))
			}
			return errors.Join(errs...)
		},
	}
}

func (a *app) validateInForce(ctx context.Context) error {
	session, l, err := new(sessionFlags).open(ctx) // makes the plan
	if err != nil {
		return err
	}
	_ = session.Close()
	for _, f := range l.Files {
		fmt.Fprintf(a.out, "%s: ok\n", printable(f.Path))
	}
	if len(l.Files) == 0 {
		fmt.Fprintln(a.out, "there are no policy files here")
	}
	return nil
}

// validateFile parses a file the way it would be in its place, where relative paths are
// fine in all but the user's own, and makes its plan with the file's folder as the
// workspace.
func validateFile(ctx context.Context, name string) error {
	path, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	data, err := readPolicy(path)
	if err != nil {
		return err
	}
	base := filepath.ToSlash(filepath.Dir(path))
	if dirs, err := machine.OwnDirs(); err == nil && path == filepath.Join(dirs.Config, config.UserFileName) {
		base = ""
	}
	doc, err := policy.ParseIn(name, base, data)
	if err != nil {
		return err
	}
	pol, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerCommand})
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	session, err := cloche.Open(ctx, pol, cloche.WithWorkspace(folder), cloche.WithDocument(folder))
	if err == nil {
		err = session.Close()
	}
	return err
}

// readPolicy reads a file, and no more of it than a policy may have.
func readPolicy(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, policy.MaxFileSize+1))
}

func (a *app) policyTest() *cobra.Command {
	var s sessionFlags
	c := &cobra.Command{
		Use:   "test [flags]",
		Short: "Check the tests of the policy files",
		Long: `Check the tests of the policy files in force. Each says whether an operation is
allowed or denied. Nothing is run.

The exit status is 0 if all tests pass, 1 if one fails.`,
		Example: "  cloche policy test\n  cloche policy test --policy ./strict.yaml",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			session, l, err := s.open(c.Context())
			if err != nil {
				return err
			}
			defer func() { _ = session.Close() }()
			return a.runTests(session, l.Policy.Tests)
		},
	}
	s.add(c)
	return c
}

func (a *app) policySchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of policy files",
		Long:    "Print the JSON schema of policy files, for editors that check and complete them.",
		Example: "  cloche policy schema",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(policy.Schema())
			return err
		},
	}
}

func (a *app) policyPresets() *cobra.Command {
	return &cobra.Command{
		Use:   "presets [NAME]",
		Short: "List the presets, or print one",
		Long: `List the presets that a policy can name, or print the text of one.

A base is a whole policy to start from. Groups, toolchains and agents add to it;
toolchains and agents that are named without a base have workspace below them.`,
		Example: "  cloche policy presets\n  cloche policy presets workspace",
		Args:    args(0, 1, "NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPresets()
			}
			text, err := policy.PresetSource(args[0])
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		},
	}
}

func (a *app) listPresets() error {
	t := &table{}
	names := policy.Presets()
	slices.SortStableFunc(names, func(a, b string) int {
		kinds := []string{"base", "group", "toolchain", "database", "agent"}
		return cmp.Compare(slices.Index(kinds, policy.PresetKind(a)), slices.Index(kinds, policy.PresetKind(b)))
	})
	for _, name := range names {
		text, err := policy.PresetSource(name)
		if err != nil {
			return err
		}
		t.add(name, policy.PresetKind(name), firstSentence(string(text)))
	}
	return a.printTable(nil, t)
}

// firstSentence is the first sentence of the comment that a preset starts with.
func firstSentence(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			break
		}
		words = append(words, strings.TrimSpace(comment))
	}
	sentence, _, _ := strings.Cut(strings.Join(words, " "), ". ")
	return strings.TrimSuffix(sentence, ".")
}

// runTests checks each claim of a policy and says how many hold.
func (a *app) runTests(session *cloche.Session, tests []policy.Test) error {
	var b strings.Builder
	failed := 0
	for _, t := range tests {
		line, ok := checkClaim(session, t)
		if !ok {
			failed++
		}
		b.WriteString(printable(line) + "\n")
	}
	switch {
	case len(tests) == 0:
		b.WriteString("there are no tests; a policy file has them under tests:\n")
	case failed == 0:
		fmt.Fprintf(&b, "%d of %d hold\n", len(tests), len(tests))
	default:
		fmt.Fprintf(&b, "%d of %d hold, %d fail\n", len(tests)-failed, len(tests), failed)
	}
	return deniedUnless(failed == 0, a.printText(b.String()))
}

// checkClaim says whether one claim holds.
func checkClaim(session *cloche.Session, t policy.Test) (line string, ok bool) {
	claim := t.Action + " " + t.Target + " is " + verdict(t.Allow)
	d, err := session.Check(plan.Op(t.Action), t.Target)
	switch {
	case err != nil:
		return "FAIL  " + claim + ": " + err.Error() + " (" + t.Origin.String() + ")", false
	case d.Allowed != t.Allow:
		return fmt.Sprintf("FAIL  %s: it is %s: %s (%s)", claim, verdict(d.Allowed), denials.RuleFrom(&d), t.Origin), false
	}
	return "ok    " + claim, true
}

func verdict(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}
