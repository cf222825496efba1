package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// run measures what the options ask for, prints the table to stdout and writes
// the files.
func run(ctx context.Context, o options, stdout, log io.Writer) (err error) {
	out, err := newOutput(o)
	if err != nil {
		return err
	}
	l, err := newLab(o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.prepare(ctx); err != nil {
		return err
	}
	r := &report.Report{Date: time.Now()}
	if r.Tables, err = l.measure(ctx); err != nil {
		return err
	}
	r.Facts, r.Skipped, r.Goals = l.facts, l.skipped, allGoals()
	if err := r.Markdown(stdout); err != nil {
		return err
	}
	return out.write(r)
}

// prepare gets everything that is measured.
func (l *lab) prepare(ctx context.Context) error {
	if err := l.buildCloche(ctx); err != nil {
		return err
	}
	l.findPeers(ctx)
	l.facts = l.machineFacts(ctx)
	return l.moveIn()
}

// measure runs the scenarios that were asked for.
func (l *lab) measure(ctx context.Context) ([]report.Table, error) {
	contenders, err := l.usable(ctx)
	if err != nil {
		return nil, err
	}
	var tables []report.Table
	for _, s := range scenarios() {
		if !slices.Contains(l.scenarios, s.name) {
			continue
		}
		cases, err := s.cases(ctx, l)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			l.skip("scenario "+s.name, err)
			continue
		}
		for _, c := range cases {
			t, err := l.measureCase(ctx, s, c, contenders)
			if err != nil {
				return nil, err
			}
			tables = append(tables, t)
		}
	}
	return tables, nil
}

// An output is where the report goes besides standard output. Paths are made
// absolute first: the program changes its working folder.
type output struct {
	svg, docs, docsSVG string
	parts              []docsPart // of docs
}

func newOutput(o options) (output, error) {
	var out output
	var err error
	if o.svg != "" {
		if out.svg, err = filepath.Abs(o.svg); err != nil {
			return out, err
		}
	}
	if !o.updateDocs {
		return out, nil
	}
	if out.docs, err = filepath.Abs(docsFile); err != nil {
		return out, err
	}
	if out.parts, err = docsParts(o.scenarios); err != nil {
		return out, err
	}
	if slices.Contains(out.parts, docsMain) {
		out.docsSVG = filepath.Join(filepath.Dir(out.docs), docsPlot)
	}
	// A page that cannot be updated is worth knowing before minutes of work.
	page, err := os.ReadFile(out.docs)
	if err != nil {
		return out, fmt.Errorf("-update-docs: %w; start this from the top of the source tree", err)
	}
	for _, d := range out.parts {
		if _, err := d.replace(string(page), ""); err != nil {
			return out, fmt.Errorf("%s: %w", out.docs, err)
		}
	}
	return out, nil
}

func (o output) write(r *report.Report) error {
	for _, file := range []string{o.svg, o.docsSVG} {
		if file == "" {
			continue
		}
		if err := writePlot(file, r); err != nil {
			return err
		}
	}
	if o.docs == "" {
		return nil
	}
	return updateDocs(o.docs, o.parts, r)
}
