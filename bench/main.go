// Command bench measures cloche against other sandboxes and against no sandbox
// at all, all of them in turns, and prints ratios. Start it with ./bench/run;
// docs/reference/measurements.md says what the numbers mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == helperWord {
		os.Exit(helperMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == netClientWord {
		os.Exit(netClientMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == churnWord {
		os.Exit(churnMain(os.Args[2:]))
	}
	os.Exit(mainStatus(os.Args[1:], os.Stdout, os.Stderr))
}

// mainStatus runs the program and returns its exit status. A signal ends it by
// way of the context, so that the temporary folder is removed.
func mainStatus(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	o, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 2
	}
	if o.list {
		listScenarios(stdout)
		return 0
	}
	err = run(ctx, o, stdout, stderr)
	switch {
	case ctx.Err() != nil && !errors.Is(err, errNotRemoved):
		fmt.Fprintln(stderr, "bench: stopped; nothing is left behind")
		return 130
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

// options are what the command line says.
type options struct {
	quick      bool
	rounds     int // 0: as many as the time of each case allows
	seed       uint64
	scenarios  []string
	svg        string
	updateDocs bool
	install    bool
	cloche     string // measure this command instead of building one
	dir        string // where the temporary folder is made
	memory     string // a folder on a tmpfs
	list       bool
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var names string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.quick, "quick", false, "less of everything: under a minute")
	f.IntVar(&o.rounds, "rounds", 0, "measure each contender `N` times, however long that takes")
	f.Uint64Var(&o.seed, "seed", rand.Uint64()>>32, "draw the order of each round from `N`, as an earlier run did")
	f.StringVar(&names, "scenarios", "", "measure only these scenarios (comma-separated `LIST`)")
	f.StringVar(&o.svg, "svg", "", "write the plot to `FILE`")
	f.BoolVar(&o.updateDocs, "update-docs", false, "write the table and the plot into docs/")
	f.BoolVar(&o.install, "install", true, "install the peers that are missing")
	f.StringVar(&o.cloche, "cloche", "", "measure the command `FILE` instead of one built from this tree")
	f.StringVar(&o.dir, "dir", "", "make the temporary folder in `DIR` (default: the user's cache folder)")
	f.StringVar(&o.memory, "memory", "", "measure changes of files on a tmpfs in `DIR`, too (default: in the temporary folder, if that is one)")
	f.BoolVar(&o.list, "list", false, "list the scenarios and stop")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is no option; see -help", f.Arg(0))
	case o.rounds < 0:
		return o, fmt.Errorf("-rounds %d: it cannot be negative", o.rounds)
	}
	var err error
	o.scenarios, err = scenarioNames(names)
	return o, err
}

// scenarioNames reads the list of -scenarios; an empty one means all of them.
func scenarioNames(list string) ([]string, error) {
	var known, names []string
	for _, s := range scenarios() {
		known = append(known, s.name)
	}
	if list == "" {
		return known, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no scenario %q; known are %s", name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

func listScenarios(w io.Writer) {
	for _, s := range scenarios() {
		fmt.Fprintf(w, "%-10s %s\n", s.name, s.about)
	}
}
