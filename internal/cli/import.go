package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/internal/importer"
	"github.com/cloche-dev/cloche/policy"
)

type importFlags struct {
	from, output string
	strict       bool
}

func (a *app) importCommand() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import [flags] FILE",
		Short: "Turn the settings of another sandbox into a policy",
		Long: `Read the settings of sandbox-runtime (srt), of Claude Code (claude) or of Codex
(codex), and print a policy that means the same. Each entry says where it comes
from. A setting without an equivalent is reported, and is a comment in the policy;
with --strict the exit status is then 1.

Without --from, the name and content of FILE decide which kind it is. "-" is
standard input.`,
		Example: `  cloche import .claude/settings.json
  cloche import --from srt --output imported.yaml srt-settings.json
  cloche import --strict --json config.toml`,
		Args: args(1, 1, "FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return a.importFile(args[0], &f) },
	}
	textFlag(c.Flags(), &f.from, "from", "KIND", groupPolicy, "whose settings they are: srt, claude or codex")
	textFlag(c.Flags(), &f.output, "output", "FILE", groupOutput, "write the policy to a new FILE")
	a.jsonFlag(c, "print JSON: the policy, and the settings without an equivalent")
	boolFlag(c.Flags(), &f.strict, "strict", groupOutput, "end with status 1 if a setting has no equivalent")
	return c
}

func (a *app) importFile(name string, f *importFlags) error {
	data, err := a.readSettings(name)
	if err != nil {
		return err
	}
	from := importer.Source(f.from)
	if from == "" {
		if from, err = importer.Detect(name, data); err != nil {
			return err
		}
	}
	r, err := importer.Import(from, name, data)
	if err != nil {
		return err
	}
	if err := a.writeImported(r, f); err != nil {
		return err
	}
	for _, u := range r.Unmatched {
		a.words.warn(fmt.Sprintf("not imported: %s: %s", u.Setting, u.Reason))
	}
	return deniedUnless(!f.strict || len(r.Unmatched) == 0, nil)
}

// readSettings reads a file, or standard input, and no more than a policy may have.
func (a *app) readSettings(name string) ([]byte, error) {
	if name != "-" {
		data, err := readPolicy(name)
		return data, errors.Join(err, tooLarge(name, data))
	}
	data, err := io.ReadAll(io.LimitReader(a.in, policy.MaxFileSize+1))
	return data, errors.Join(err, tooLarge("standard input", data))
}

func tooLarge(name string, data []byte) error {
	if len(data) > policy.MaxFileSize {
		return fmt.Errorf("%s is larger than %d bytes, which no settings file is; name another", name, policy.MaxFileSize)
	}
	return nil
}

func (a *app) writeImported(r *importer.Result, f *importFlags) error {
	if f.output != "" {
		if err := writeNew(f.output, r.Policy); err != nil {
			return err
		}
	}
	result := map[string]any{"policy": string(r.Policy), "unmatched": append([]importer.Unmatched{}, r.Unmatched...)}
	return a.print(result, func(b *strings.Builder) {
		if f.output == "" {
			b.Write(r.Policy)
			return
		}
		fmt.Fprintf(b, "wrote  %[1]s\nnext   read it, then use it with --policy %[1]s, or as a .cloche.yaml\n", printable(f.output))
	})
}
