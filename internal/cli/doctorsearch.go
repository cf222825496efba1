package cli

import (
	"context"
	"fmt"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// searched is what a command that is started here, by the policy in force, finds to
// hide.
func searched(ctx context.Context) ([]*hostfs.Found, error) {
	session, _, err := new(sessionFlags).open(ctx, func(*loaded) cloche.Option { return cloche.WithDeferredPlan() })
	if err != nil {
		return nil, err
	}
	defer func() { _ = session.Close() }()
	return session.Searched()
}

// searchFact is about the search for files to hide, as .env, and what it leaves open
// in a workspace of this size.
func searchFact(all []*hostfs.Found, err error) fact {
	f := fact{name: "files to hide"}
	if err != nil {
		f.text = "could not be looked for: " + errorLines(err)[0]
		return f
	}
	if len(all) == 0 {
		f.text = "are not searched for: the policy has no rule paths.hide_found"
		return f
	}
	folders := 0
	for _, found := range all {
		folders += found.Folders
		if gap := searchGap(found); gap != "" {
			f.text = gap
			f.fix = "--preset dotenv hides such files without a search; every file that is read then costs more"
			return f
		}
	}
	f.outcome, f.text = host.Yes, fmt.Sprintf("are searched for before each command, in all folders here (%d)", folders)
	return f
}

// searchGap says what a search leaves open, if anything.
func searchGap(f *hostfs.Found) string {
	switch {
	case f.Unseen > 0:
		return fmt.Sprintf("%d or more folders in %s are not searched: too many, or there was no time yet", f.Unseen, f.Root)
	case f.Omitted > 0:
		return fmt.Sprintf("%d files in %s are not hidden: there are too many", f.Omitted, f.Root)
	}
	return ""
}
