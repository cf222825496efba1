package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The measures of the plot, in pixels.
const (
	plotWidth  = 820
	barsLeft   = 220 // where the scale begins
	barsRight  = 700 // where it ends; the numbers are behind it
	rowHeight  = 20
	barHeight  = 12
	headHeight = 40 // for the numbers of the scale
	titleSpace = 34
	margin     = 16
)

// The colours of the plot, readable on white and by people who see red and
// green alike.
const (
	ownColour   = "#0b6e99"
	peerColour  = "#b8b8b8"
	textColour  = "#222222"
	gridColour  = "#e4e4e4"
	rangeColour = "#444444"
)

// SVG writes the report as one plot. The bars show ratios to each table's first
// baseline on one logarithmic scale: a bar that goes left from 1 is a smaller
// value than the baseline's, one that goes right a larger one, and twice as
// much is the same length everywhere. The thin line over a bar spans the
// quartiles.
func (r *Report) SVG(w io.Writer) error {
	p := &plot{scale: newScale(r.Tables)}
	y := headHeight
	for i := range r.Tables {
		y = p.table(&r.Tables[i], y)
	}
	var doc strings.Builder
	height := y + margin
	fmt.Fprintf(&doc, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s" role="img">`+"\n",
		plotWidth, height, textColour)
	fmt.Fprintf(&doc, "<title>Ratios to the baseline of each group</title>\n")
	fmt.Fprintf(&doc, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	doc.WriteString(p.scale.grid(height - margin))
	doc.WriteString(p.body.String())
	doc.WriteString("</svg>\n")
	_, err := io.WriteString(w, doc.String())
	return err
}

// A plot is the body of a drawing under construction.
type plot struct {
	body  strings.Builder
	scale scale
}

// table draws one table from y on and returns where it ends.
func (p *plot) table(t *Table, y int) int {
	if len(t.Baselines) == 0 {
		return y
	}
	note := "× " + t.Baselines[0]
	if t.HigherIsBetter {
		note += ", right is better"
	} else {
		note += ", left is better"
	}
	y += titleSpace
	p.text(margin, y-8, "start", "bold", strings.ReplaceAll(t.Title, "`", ""))
	p.text(plotWidth-margin, y-8, "end", "normal", note)
	for _, row := range t.Rows {
		p.row(row, y)
		y += rowHeight
	}
	return y
}

func (p *plot) row(row Row, y int) {
	weight, colour := "normal", peerColour
	if row.Own {
		weight, colour = "bold", ownColour
	}
	base := y + rowHeight - 6
	p.text(barsLeft-10, base, "end", weight, row.Name)
	if len(row.Ratios) == 0 || !row.Ratios[0].Known() {
		p.text(barsRight+10, base, "start", "normal", "no ratio")
		return
	}
	ratio := row.Ratios[0]
	from, to := p.scale.x(1), p.scale.x(ratio.Median)
	p.rect(min(from, to), float64(y+(rowHeight-barHeight)/2), max(math.Abs(to-from), 2), barHeight, colour)
	low, high := p.scale.x(ratio.Low), p.scale.x(ratio.High)
	p.rect(low, float64(y)+rowHeight/2-0.5, max(high-low, 1), 1, rangeColour)
	p.text(barsRight+10, base, "start", weight, threeDigits(ratio.Median)+" ×")
}

func (p *plot) rect(x, y, width, height float64, colour string) {
	fmt.Fprintf(&p.body, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, colour)
}

func (p *plot) text(x, y int, anchor, weight, s string) {
	fmt.Fprintf(&p.body, `<text x="%d" y="%d" text-anchor="%s" font-weight="%s">%s</text>`+"\n", x, y, anchor, weight, escape(s))
}

func escape(s string) string {
	var b strings.Builder
	// A strings.Builder cannot fail.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// A scale maps ratios to pixels, by whole powers of ten.
type scale struct {
	low, high int // exponents
}

// newScale returns the smallest scale that shows every ratio, and 1.
func newScale(tables []Table) scale {
	s := scale{low: 0, high: 0}
	for _, t := range tables {
		for _, row := range t.Rows {
			if len(row.Ratios) > 0 {
				s.include(row.Ratios[0].Low)
				s.include(row.Ratios[0].High)
			}
		}
	}
	if s.low == s.high {
		s.high++
	}
	return s
}

func (s *scale) include(ratio float64) {
	if !(ratio > 0) || math.IsInf(ratio, 0) {
		return
	}
	exponent := math.Log10(ratio)
	s.low = min(s.low, int(math.Floor(exponent)))
	s.high = max(s.high, int(math.Ceil(exponent)))
}

func (s scale) x(ratio float64) float64 {
	if !(ratio > 0) {
		return barsLeft
	}
	part := (math.Log10(ratio) - float64(s.low)) / float64(s.high-s.low)
	return barsLeft + (barsRight-barsLeft)*min(max(part, 0), 1)
}

// grid draws the powers of ten, and 1 darker than the others.
func (s scale) grid(bottom int) string {
	var b strings.Builder
	for e := s.low; e <= s.high; e++ {
		colour := gridColour
		if e == 0 {
			colour = textColour
		}
		x := s.x(math.Pow10(e))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/>`+"\n", x, headHeight-6, x, bottom, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%g ×</text>`+"\n", x, headHeight-14, math.Pow10(e))
	}
	return b.String()
}
