package review

import (
	"bytes"
	"slices"
)

// An Edit replaces lines Old[From:To] of the old text by lines New[NewFrom:NewTo] of the new one.
type Edit struct{ From, To, NewFrom, NewTo int }

// splitLines cuts a text after each newline.
func splitLines(text []byte) [][]byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if n := len(lines); len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	return lines
}

// diffLines returns the edits that lead from a to b, in order. It pairs lines that are in both texts once (the patience
// method), and between these compares small parts in full. The time grows with the
// length of the texts times its logarithm, whatever is in them; for texts with few distinct lines, or that were made to take long, the
// edits may be larger than necessary.
func diffLines(a, b [][]byte) []Edit {
	// Numbers compare faster than lines.
	numbers := map[string]int{}
	number := func(lines [][]byte) []int {
		out := make([]int, len(lines))
		for i, line := range lines {
			n, ok := numbers[string(line)]
			if !ok {
				n = len(numbers)
				numbers[string(line)] = n
			}
			out[i] = n
		}
		return out
	}
	d := lineDiffer{a: number(a), b: number(b)}
	d.part(0, len(a), 0, len(b), 0)
	return d.edits
}

type lineDiffer struct {
	a, b  []int
	edits []Edit
}

const (
	// maxTable bounds the table for two parts without lines that are unique in both.
	maxTable = 1 << 18
	// maxParts bounds how often a part is cut at unique lines. All parts of one depth together are as long as the texts.
	maxParts = 16
)

func (d *lineDiffer) part(a0, a1, b0, b1, depth int) {
	for a0 < a1 && b0 < b1 && d.a[a0] == d.b[b0] {
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && d.a[a1-1] == d.b[b1-1] {
		a1, b1 = a1-1, b1-1
	}
	if a0 == a1 || b0 == b1 {
		if a0 < a1 || b0 < b1 {
			d.replace(a0, a1, b0, b1)
		}
		return
	}
	var pairs [][2]int
	if depth < maxParts {
		pairs = d.anchors(a0, a1, b0, b1)
	}
	switch {
	case len(pairs) > 0:
		for _, p := range pairs {
			d.part(a0, p[0], b0, p[1], depth+1)
			a0, b0 = p[0]+1, p[1]+1
		}
		d.part(a0, a1, b0, b1, depth+1)
	case (a1-a0)*(b1-b0) <= maxTable:
		d.table(a0, a1, b0, b1)
	default:
		d.replace(a0, a1, b0, b1)
	}
}

// replace adds an edit, joined with the one before if they touch.
func (d *lineDiffer) replace(a0, a1, b0, b1 int) {
	if n := len(d.edits); n > 0 && d.edits[n-1].To == a0 && d.edits[n-1].NewTo == b0 {
		d.edits[n-1].To, d.edits[n-1].NewTo = a1, b1
		return
	}
	d.edits = append(d.edits, Edit{a0, a1, b0, b1})
}

// anchors returns the longest list of lines that are unique in both parts and in the same order.
func (d *lineDiffer) anchors(a0, a1, b0, b1 int) [][2]int {
	type seen struct{ inA, inB, atB int }
	count := make(map[int]*seen, a1-a0)
	for _, n := range d.a[a0:a1] {
		if s := count[n]; s != nil {
			s.inA++
		} else {
			count[n] = &seen{inA: 1}
		}
	}
	for i, n := range d.b[b0:b1] {
		if s := count[n]; s != nil {
			s.inB++
			s.atB = b0 + i
		}
	}
	var pairs [][2]int
	for i, n := range d.a[a0:a1] {
		if s := count[n]; s.inA == 1 && s.inB == 1 {
			pairs = append(pairs, [2]int{a0 + i, s.atB})
		}
	}
	// The longest rising sequence of places in b: ends[k] ends the best one of length k+1.
	var ends []int
	before := make([]int, len(pairs))
	for i, p := range pairs {
		k, _ := slices.BinarySearchFunc(ends, p[1], func(j, at int) int { return pairs[j][1] - at })
		before[i] = -1
		if k > 0 {
			before[i] = ends[k-1]
		}
		if k == len(ends) {
			ends = append(ends, i)
		} else {
			ends[k] = i
		}
	}
	var out [][2]int
	if len(ends) > 0 {
		for i := ends[len(ends)-1]; i >= 0; i = before[i] {
			out = append(out, pairs[i])
		}
	}
	slices.Reverse(out)
	return out
}

// table finds the longest common list of lines of two small parts.
func (d *lineDiffer) table(a0, a1, b0, b1 int) {
	w := b1 - b0 + 1
	long := make([]int32, (a1-a0+1)*w)
	for i := a1 - 1; i >= a0; i-- {
		for j := b1 - 1; j >= b0; j-- {
			at := (i-a0)*w + j - b0
			if d.a[i] == d.b[j] {
				long[at] = long[at+w+1] + 1
			} else {
				long[at] = max(long[at+w], long[at+1])
			}
		}
	}
	for i, j := a0, b0; i < a1 || j < b1; {
		at := (i-a0)*w + j - b0
		switch {
		case i < a1 && j < b1 && d.a[i] == d.b[j]:
			i, j = i+1, j+1
		case i < a1 && (j == b1 || long[at+w] >= long[at+1]):
			d.replace(i, i+1, j, j)
			i++
		default:
			d.replace(i, i, j, j+1)
			j++
		}
	}
}
