package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for a release:
// -ldflags "-X github.com/cloche-dev/cloche/internal/cli.version=v1.2.3".
var version string

// buildVersion is the release, or what the Go toolchain knows of the build.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (a *app) printVersion() error {
	_, err := fmt.Fprintf(a.out, "cloche %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of cloche, of the Go toolchain that built it, and the\nsystem it was built for.",
		Example: "  cloche version\n  cloche version --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return writeJSON(a.out, map[string]string{
					"version": buildVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			return a.printVersion()
		},
	}
	boolFlag(c.Flags(), &asJSON, "json", groupOutput, "print JSON")
	return c
}
