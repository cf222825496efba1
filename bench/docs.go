package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// The page that shows the last measurement, from the top of the source tree,
// and the plot beside it.
const (
	docsFile = "docs/reference/measurements.md"
	docsPlot = "performance.svg"
)

// What stands between these two lines of the page is replaced.
const (
	docsBegin = "<!-- bench:begin -->"
	docsEnd   = "<!-- bench:end -->"
)

// updateDocs puts the report into the page.
func updateDocs(file string, r *report.Report) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "![Ratios to the baseline of each group](%s)\n\n", docsPlot)
	if err := r.Markdown(&text); err != nil {
		return err
	}
	updated, err := replaceBetween(string(page), text.String())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(updated), 0o644)
}

// replaceBetween replaces what stands between the two markers.
func replaceBetween(page, text string) (string, error) {
	before, rest, ok := strings.Cut(page, docsBegin+"\n")
	if !ok {
		return "", fmt.Errorf("there is no line %q; add it where the table belongs", docsBegin)
	}
	_, after, ok := strings.Cut(rest, docsEnd)
	if !ok {
		return "", fmt.Errorf("there is no line %q after %q; add it", docsEnd, docsBegin)
	}
	if text != "" {
		text = "\n" + strings.Trim(text, "\n") + "\n\n"
	}
	return before + docsBegin + "\n" + text + docsEnd + after, nil
}

func writePlot(file string, r *report.Report) error {
	var svg bytes.Buffer
	if err := r.SVG(&svg); err != nil {
		return err
	}
	return os.WriteFile(file, svg.Bytes(), 0o644)
}
