package review

import (
	"bytes"
	"slices"
)

// A Merged is what a three-way merge made of a file that the host and the command changed.
type Merged struct {
	// Host is the host's file that was merged, and Text the result. An overlap is in it with both sides, between markers.
	Host, Text []byte
	Overlaps   int
	Mode       uint32
}

// The names of the sides in the markers of an overlap.
const (
	hostSide    = "host"
	originSide  = "before the command"
	commandSide = "command"
)

// mergeLines merges two texts that were made from a third one, line by line. Changes of both sides overlap if no
// line lies between them that both left as it was, unless they are the same. An overlap is written with the
// markers of git's style diff3.
func mergeLines(original, host, command []byte) (text []byte, overlaps int) {
	old, a, b := splitLines(original), splitLines(host), splitLines(command)
	left, right := diffLines(old, a), diffLines(old, b)
	eol := "\n"
	if len(a) > 0 && bytes.HasSuffix(a[0], []byte("\r\n")) {
		eol = "\r\n"
	}
	var out bytes.Buffer
	write := func(lines [][]byte) {
		for _, line := range lines {
			out.Write(line)
		}
	}
	mark := func(sign, name string) {
		if b := out.Bytes(); len(b) > 0 && b[len(b)-1] != '\n' {
			out.WriteString(eol)
		}
		out.WriteString(sign)
		if name != "" {
			out.WriteString(" " + name)
		}
		out.WriteString(eol)
	}
	at := 0                       // the next line of old
	var shiftLeft, shiftRight int // from a line of old to the same line of a side
	for len(left) > 0 || len(right) > 0 {
		from := firstLine(left, right)
		to, ofLeft, ofRight := touching(from, left, right)
		write(old[at:from])
		at = to
		aFrom, bFrom := from+shiftLeft, from+shiftRight
		shiftLeft, shiftRight = shift(left[:ofLeft], shiftLeft), shift(right[:ofRight], shiftRight)
		ours, theirs := a[aFrom:to+shiftLeft], b[bFrom:to+shiftRight]
		left, right = left[ofLeft:], right[ofRight:]
		switch {
		case ofRight == 0:
			write(ours)
		case ofLeft == 0 || slices.EqualFunc(ours, theirs, bytes.Equal):
			write(theirs)
		default:
			overlaps++
			mark("<<<<<<<", hostSide)
			write(ours)
			mark("|||||||", originSide)
			write(old[from:to])
			mark("=======", "")
			write(theirs)
			mark(">>>>>>>", commandSide)
		}
	}
	write(old[at:])
	return out.Bytes(), overlaps
}

// firstLine is where the first edit of two lists begins, of which one may be empty.
func firstLine(left, right []Edit) int {
	switch {
	case len(left) == 0:
		return right[0].From
	case len(right) == 0:
		return left[0].From
	}
	return min(left[0].From, right[0].From)
}

// touching returns how many edits of each list follow each other from a line on with no line between
// them, and where the last of them ends.
func touching(from int, left, right []Edit) (to, ofLeft, ofRight int) {
	to = from
	for {
		switch {
		case ofLeft < len(left) && left[ofLeft].From <= to:
			to = max(to, left[ofLeft].To)
			ofLeft++
		case ofRight < len(right) && right[ofRight].From <= to:
			to = max(to, right[ofRight].To)
			ofRight++
		default:
			return to, ofLeft, ofRight
		}
	}
}

// shift is by how much lines have moved after some edits.
func shift(edits []Edit, before int) int {
	if len(edits) == 0 {
		return before
	}
	last := edits[len(edits)-1]
	return last.NewTo - last.To
}

// mergeModes returns the permissions that result if at most one side changed them, or both in the same way.
func mergeModes(original, host, command uint32) (mode uint32, ok bool) {
	switch {
	case host == command || command == original:
		return host, true
	case host == original:
		return command, true
	}
	return 0, false
}
