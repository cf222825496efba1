package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// doctorTime bounds all probes together.
const doctorTime = 30 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can enforce, and print fixes",
		Long: `Check what this machine can enforce, by really trying it, and print the fix for
what is missing.

--json prints all facts, for a bug report. It contains no values of variables.

The last line says whether commands run confined here, under the policy in force,
and by which backend. The exit status is 0 if they do, 1 if not.`,
		Example: "  cloche doctor\n  cloche doctor --json",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.doctor(c.Context()) },
	}
	a.jsonFlag(c, "print the facts as JSON")
	return c
}

func (a *app) doctor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("the working folder is not known: %w", err)
	}
	done := a.words.progress("trying what this machine can do")
	snap, err := cloche.Doctor(ctx, cwd)
	var search fact
	if err == nil && !a.json {
		search = searchFact(searched(ctx))
	}
	done()
	if err != nil {
		return err
	}
	chosen, reason := confinedHere(ctx, snap)
	colour := wantsColour(a.out)
	return deniedUnless(reason == nil, a.print(snap, func(b *strings.Builder) {
		writeFacts(b, append(factsOf(snap), search), chosen, reason, colour)
	}))
}

// confinedHere returns the backend that confines a command which is run here, under
// the policy in force, or why none does. The probes are those of the snapshot.
func confinedHere(ctx context.Context, snap *host.Snapshot) (name string, reason error) {
	session, _, err := new(sessionFlags).open(ctx, cloche.WithDeferredPlan(), cloche.WithHost(snap))
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	return session.ConfinedBy(ctx)
}

// A fact is one line of doctor's.
type fact struct {
	name string
	// outcome is Yes for what is there, No for what is missing, Unknown for
	// what is neither good nor bad.
	outcome host.Outcome
	text    string
	fix     string
}

func writeFacts(b *strings.Builder, facts []fact, chosen string, reason error, colour bool) {
	for _, f := range facts {
		fmt.Fprintf(b, "%s %-17s %s\n", f.mark(colour), f.name, printable(f.text))
	}
	unconfined, isUnconfined := errors.AsType[*cloche.UnconfinedError](reason)
	switch {
	case reason == nil:
		fmt.Fprintf(b, "\ncommands are confined by %s\n", chosen)
	case isUnconfined:
		fmt.Fprintf(b, "\ncommands are not confined here: %s (%s)\n", printable(unconfined.Reason), printable(unconfined.Origin.String()))
	default:
		fmt.Fprintf(b, "\ncommands do not run here: %s\n", printable(oneLine(reason)))
	}
	heading := "\nto fix\n"
	for _, f := range facts {
		if f.fix != "" {
			fmt.Fprintf(b, "%s  %s: %s\n", heading, f.name, printable(f.fix))
			heading = ""
		}
	}
}

func (f fact) mark(colour bool) string {
	text, code := "     -", ""
	switch f.outcome {
	case host.Yes:
		text, code = "    ok", green
	case host.No:
		text, code = "  miss", red
	case host.Unknown:
	}
	if !colour || code == "" {
		return text
	}
	return code + text + reset
}

func factsOf(s *host.Snapshot) []fact {
	if s.OS != "linux" {
		return otherFacts(s)
	}
	return []fact{
		{name: "system", text: s.OS + "/" + s.Arch + ", kernel " + s.Kernel},
		{name: "user", text: s.User + " (uid " + strconv.Itoa(s.UID) + ")"},
		{name: "container", text: cmp.Or(s.Container, "none")},
		{name: "security modules", text: cmp.Or(strings.Join(s.LSMs, ", "), "none")},
		probeFact("user namespaces", s.Namespaces.User, "can be made and used"),
		landlockFact(s.Landlock),
		probeFact("native", s.Native, "makes sandboxes, and needs no other program"),
		bwrapFact(s.Bwrap, s.Native),
		networkFact(s.Networking.TUN, s.Networking.Veth),
		probeFact("reviews", s.Review, "can be made here: overlayfs takes this folder and cloche's state folder"),
		probeFact("unix sockets", s.UnixDiagnostics, "the kernel tells the command's own from those of the host"),
		busFact(),
		cgroupFact(s.Cgroup.Version, s.Cgroup.Delegated),
	}
}

// otherFacts are those of a system that is not Linux: nothing of Linux's is
// missing there.
func otherFacts(s *host.Snapshot) []fact {
	facts := []fact{
		{name: "system", text: strings.TrimSuffix(s.OS+"/"+s.Arch+", kernel "+s.Kernel, ", kernel ")},
		{name: "user", text: s.User + " (uid " + strconv.Itoa(s.UID) + ")"},
	}
	if s.OS == "darwin" {
		facts = append(facts, probeFact("seatbelt", s.Seatbelt, "confines commands, by /usr/bin/sandbox-exec"))
	}
	return facts
}

func probeFact(name string, p host.Probe, good string) fact {
	f := fact{name: name, outcome: p.Outcome, text: good}
	switch p.Outcome {
	case host.Yes:
	case host.No:
		f.text, f.fix = p.Reason, p.Fix
	case host.Unknown:
		f.text = "could not be found out: " + p.Reason
	}
	return f
}

func landlockFact(l host.Landlock) fact {
	if l.ABI == 0 {
		return fact{name: "landlock", outcome: host.No, text: l.Reason}
	}
	abi := "ABI " + strconv.Itoa(l.ABI)
	if l.Probe.Outcome == host.No {
		return fact{name: "landlock", outcome: host.No, text: abi + ", and confines nothing: " + l.Probe.Reason, fix: l.Probe.Fix}
	}
	text := abi
	if l.Probe.Outcome == host.Yes {
		text += ", confines commands without user namespaces"
	}
	return fact{name: "landlock", outcome: host.Yes, text: text}
}

// bwrapFact is about bubblewrap, which nobody has to install where the kernel
// alone serves.
func bwrapFact(b host.Bwrap, native host.Probe) fact {
	f := probeFact("bubblewrap", b.Probe, "version "+b.Version+" makes sandboxes ("+b.Path+")")
	if f.outcome == host.No && native.Outcome == host.Yes {
		f.outcome, f.fix = host.Unknown, ""
	}
	return f
}

// networkFact is about the ways in which packets of a user-mode network can leave.
// Where there is none, programs that know proxies still have one.
func networkFact(tun, veth host.Probe) fact {
	f := fact{name: "user-mode network", outcome: host.Yes}
	switch {
	case tun.Outcome == host.Yes:
		f.text = "serves every program, by a TUN device"
	case veth.Outcome == host.Yes:
		f.text = "serves every program, by a veth pair (no TUN device: " + tun.Reason + ")"
	default:
		f.outcome, f.fix = tun.Outcome, tun.Fix
		f.text = "serves programs that know proxies: no TUN device (" + tun.Reason + ") and no veth pair (" + veth.Reason + ")"
	}
	return f
}

func cgroupFact(version string, delegated bool) fact {
	text := cmp.Or(version, "none")
	if version != "" && !delegated {
		text += ", not delegated to this user"
	}
	return fact{name: "control groups", text: text}
}

// searched is what a command that is started here, by the policy in force, finds to
// hide.
func searched(ctx context.Context) ([]*hostfs.Found, error) {
	session, _, err := new(sessionFlags).open(ctx, cloche.WithDeferredPlan())
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
