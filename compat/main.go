// Compat runs the test suites of other projects outside and inside a sandbox and
// compares the results case by case. A case that passes outside and not inside is a
// difference. It fails unless docs/compatibility.md lists the difference and its
// reason. ./scripts/compat builds and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// page has the list of differences that are known, and the table of results.
const page = "docs/compatibility.md"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var l lab
	flag.StringVar(&l.cloche, "cloche", "", "the program under test")
	flag.StringVar(&l.cache, "cache", "", "the directory for sources and logs")
	quick := flag.Bool("quick", false, "run only the small part that CI runs")
	as := flag.String("as", "", "run as root or as user only (default: both)")
	write := flag.Bool("write", false, "write the table of results into "+page)
	flag.Parse()
	if *write && (*quick || slices.ContainsFunc(flag.Args(), func(name string) bool { return strings.Contains(name, "/") })) {
		return errors.New("--write needs whole suites: a row of the table counts all units of one")
	}

	suites, err := loadSuites("compat/suites", flag.Args(), *quick)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	known, err := readKnown(string(text))
	if err != nil {
		return err
	}
	users, err := findUsers(*as)
	if err != nil {
		return err
	}
	for _, s := range suites {
		if err := l.setUp(ctx, s); err != nil {
			return err
		}
	}

	var rows []row
	bad := 0
	for _, s := range suites {
		for _, u := range users {
			if !s.runsAs(u) {
				continue
			}
			start := time.Now()
			c, err := l.compare(ctx, s, u, known)
			if err != nil {
				return fmt.Errorf("%s as %s: %w", s.name, u.kind, err)
			}
			r := c.row(s, u)
			rows = append(rows, r)
			fmt.Printf("%-10s %-5s outside: %-32s inside: %-32s %s\n", s.name, u.kind, r.outside, r.inside, time.Since(start).Round(time.Second))
			for _, d := range c.unknown {
				fmt.Printf("  NEW    %s: %s outside, %s inside\n", d.name, d.outside, d.inside)
			}
			for _, k := range c.gone {
				fmt.Printf("  gone   %s: listed as a difference, and it is none\n", k.pattern)
			}
			bad += len(c.unknown)
		}
	}
	if *write {
		if text, err = os.ReadFile(page); err != nil { // it may have changed meanwhile
			return err
		}
		if err := os.WriteFile(page, []byte(withTable(string(text), rows)), 0o644); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d cases pass outside and not inside, and %s has no reason for them; the output is in %s", bad, page, filepath.Join(l.cache, "logs"))
	}
	return nil
}

// withTable returns the page with new rows in its table. Rows of suites that did
// not run now stay as they are.
func withTable(text string, rows []row) string {
	const begin, end = "<!-- results -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(text, begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return text
	}
	lines := map[string]string{}
	for line := range strings.Lines(old) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && !strings.HasPrefix(line, "| ---") && !strings.HasPrefix(line, "| suite") {
			lines[strings.TrimSpace(cells[1])+" "+strings.TrimSpace(cells[2])] = line
		}
	}
	for _, r := range rows {
		lines[r.suite+" "+r.user] = fmt.Sprintf("| %s | %s | %s | %s | %d |\n", r.suite, r.user, r.outside, r.inside, r.differences)
	}
	var b strings.Builder
	b.WriteString(before + begin + "| suite | as | outside | inside | differences |\n| --- | --- | --- | --- | --- |\n")
	keys := make([]string, 0, len(lines))
	for k := range lines {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b.WriteString(lines[k])
	}
	return b.String() + end + after
}
