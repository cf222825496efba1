package audit

import (
	"fmt"
	"slices"
)

// A checker goes through the lines in order and reports where and how the chain is broken. The
// hash of a line is attested if another line, or the head, names it as its predecessor. An
// attested line is as it was written, so if two lines disagree, the other one was changed.
type checker struct {
	files    []string
	lines    []logLine
	head     head
	haveHead bool

	attested map[string]bool
	bySeq    map[uint64][]int // indexes of readable lines

	last     logLine // the last accepted line; seq 0 before the first
	lastAt   int     // its index, -1 before the first
	junk     []int   // unreadable lines since then
	placed   map[uint64]bool
	blamed   map[int]bool
	findings []Finding
}

func newChecker(files []string, lines []logLine, h head, haveHead bool) *checker {
	c := &checker{
		files: files, lines: lines, head: h, haveHead: haveHead,
		attested: map[string]bool{}, bySeq: map[uint64][]int{},
		last: logLine{hash: genesis}, lastAt: -1,
		placed: map[uint64]bool{}, blamed: map[int]bool{},
	}
	if haveHead {
		c.attested[h.Hash] = true
	}
	for i, l := range lines {
		if l.parsed {
			c.attested[l.prev] = true
			c.bySeq[l.seq] = append(c.bySeq[l.seq], i)
		}
	}
	return c
}

func (c *checker) check() Report {
	for i, l := range c.lines {
		if !l.parsed {
			c.junk = append(c.junk, i)
			continue
		}
		c.place(i)
		if l.repair {
			c.add(foundRepaired, i, "the head file was missing or damaged here; lines before this one may have been removed unseen")
		}
	}
	c.checkEnd()
	return Report{Files: c.files, Count: c.last.seq, Hash: c.last.hash, Findings: c.findings}
}

// place compares one readable line with the last accepted one.
func (c *checker) place(i int) {
	l := c.lines[i]
	linked, next := l.prev == c.last.hash, l.seq == c.last.seq+1
	switch {
	case linked && !next:
		c.blame(i)
		c.accept(i, c.last.seq+1)
	case c.superseded(i):
		c.add(foundInserted, i, fmt.Sprintf("the log holds another line %d that the chain confirms", l.seq))
	case linked:
		c.accept(i, l.seq)
	case next:
		c.blameLink(i)
		c.accept(i, l.seq)
	case c.doubtful(i):
		c.placeDoubtful(i)
	case l.seq > c.last.seq:
		c.placeAfterGap(i)
	case c.placed[l.seq]:
		c.add(foundInserted, i, fmt.Sprintf("line %d of the log stands here again", l.seq))
	default:
		c.add(foundReordered, i, fmt.Sprintf("line %d of the log stands after line %d", l.seq, c.last.seq))
	}
}

// superseded reports whether the chain attests another line with the same number and not this
// one.
func (c *checker) superseded(i int) bool {
	if c.attested[c.lines[i].hash] {
		return false
	}
	return slices.ContainsFunc(c.bySeq[c.lines[i].seq], func(j int) bool {
		return j != i && c.attested[c.lines[j].hash]
	})
}

// accept accepts the line as the one numbered seq and explains the unreadable lines before it.
// It returns how many of the missing numbers these explain.
func (c *checker) accept(i int, seq uint64) (damaged uint64) {
	damaged = c.explainJunk(i, seq-c.last.seq-1)
	c.last, c.lastAt = c.lines[i], i
	c.last.seq = seq
	c.placed[seq] = true
	return damaged
}

// explainJunk classifies unreadable lines: a line is torn if the next line has its hash as
// Torn, it is damaged if numbers are missing, and otherwise it was inserted.
func (c *checker) explainJunk(i int, gap uint64) (damaged uint64) {
	junk := c.junk
	c.junk = nil
	if torn := c.lines[i].torn; torn != "" {
		if n := len(junk) - 1; n >= 0 && c.lines[junk[n]].hash == torn {
			c.add(foundTorn, junk[n], "the writer died before the line was complete")
			junk = junk[:n]
		} else {
			c.add(foundRemoved, i, "an unfinished line stood before this one and is gone or changed")
		}
	}
	return c.explainDamage(junk, gap)
}

// explainDamage reports unreadable lines as damaged as long as numbers are missing, and the
// rest as inserted.
func (c *checker) explainDamage(junk []int, gap uint64) (damaged uint64) {
	for _, j := range junk {
		if damaged < gap {
			c.blame(j)
			damaged++
			continue
		}
		c.add(foundInserted, j, "the line is not an event of the log")
	}
	return damaged
}

// blameLink reports which of two neighbors was changed if the second does not name the first.
func (c *checker) blameLink(i int) {
	unknowable := !c.haveHead && i == len(c.lines)-1
	if c.lastAt >= 0 && (c.attested[c.lines[i].hash] || unknowable) {
		c.blame(c.lastAt)
		return
	}
	c.blame(i)
}

// doubtful reports whether nothing attests a line or its position, while the next line shows
// where the chain continues.
func (c *checker) doubtful(i int) bool {
	if c.attested[c.lines[i].hash] {
		return false
	}
	seq := c.nextSeq(i)
	return seq == c.last.seq+1 || seq == c.last.seq+2
}

// nextSeq returns the number of the next readable line, or 0 at the end.
func (c *checker) nextSeq(i int) uint64 {
	for _, l := range c.lines[i+1:] {
		if l.parsed {
			return l.seq
		}
	}
	return 0
}

func (c *checker) placeDoubtful(i int) {
	if c.nextSeq(i) == c.last.seq+1 {
		c.add(foundInserted, i, "nothing in the chain leads to this line or from it")
		return
	}
	c.blame(i)
	c.accept(i, c.last.seq+1)
}

// placeAfterGap accepts a line whose number is too high.
func (c *checker) placeAfterGap(i int) {
	l, from := c.lines[i], c.last.seq+1
	if c.anyLater(i, from, l.seq) {
		c.add(foundReordered, i, fmt.Sprintf("line %d of the log stands before line %d", l.seq, from))
		c.accept(i, l.seq)
		return
	}
	if damaged := c.accept(i, l.seq); damaged < l.seq-from {
		c.missing(i, from+damaged, l.seq-1)
	}
}

// anyLater reports whether a line numbered in [from, to) comes after line i.
func (c *checker) anyLater(i int, from, to uint64) bool {
	const look = 4096 // a larger gap is not reported as a reordering
	for seq := from; seq < to && seq-from < look; seq++ {
		if at := c.bySeq[seq]; len(at) > 0 && at[len(at)-1] > i {
			return true
		}
	}
	return false
}

// missing reports that lines before line i are gone, and names their file if the whole file is
// missing.
func (c *checker) missing(i int, from, to uint64) {
	l := c.lines[i]
	if l.prevFile != "" && !slices.Contains(c.files, l.prevFile) {
		c.findings = append(c.findings, Finding{
			Kind: foundMissingFile, File: l.prevFile,
			Detail: fmt.Sprintf("the file before %s is gone; %s missing", c.files[l.file], span(from, to)),
		})
		return
	}
	c.add(foundRemoved, i, span(from, to)+" missing before this line")
}

func span(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("line %d of the log is", from)
	}
	return fmt.Sprintf("lines %d to %d of the log are", from, to)
}

// checkEnd compares the end of the log with the head.
func (c *checker) checkEnd() {
	if !c.haveHead {
		c.endJunk(0)
		if len(c.files) > 0 {
			c.findings = append(c.findings, Finding{Kind: foundBadHead, File: headName, Detail: "it is missing or damaged; it is not known whether the end of the log is complete"})
		}
		return
	}
	gap := uint64(0)
	if c.head.Count > c.last.seq {
		gap = c.head.Count - c.last.seq
	}
	damaged := c.endJunk(gap)
	switch {
	case damaged < gap:
		c.cutOff(c.last.seq + damaged + 1)
	case gap == 0:
		c.checkHeadHash()
	}
}

// endJunk explains unreadable lines after the last readable one.
func (c *checker) endJunk(gap uint64) (damaged uint64) {
	junk := c.junk
	c.junk = nil
	if n := len(junk) - 1; n >= 0 && gap == 0 && !c.lines[junk[n]].complete {
		c.add(foundTorn, junk[n], "the writer died before the line was complete")
		junk = junk[:n]
	}
	return c.explainDamage(junk, gap)
}

// cutOff reports that the lines from a number up to the head's are missing.
func (c *checker) cutOff(from uint64) {
	detail := span(from, c.head.Count) + " missing at the end"
	if !slices.Contains(c.files, c.head.File) {
		c.findings = append(c.findings, Finding{Kind: foundMissingFile, File: c.head.File, Detail: "the last file is gone; " + detail})
		return
	}
	f := Finding{Kind: foundCutOff, File: c.head.File, Detail: detail}
	if c.lastAt >= 0 {
		f.File, f.Line = c.files[c.last.file], c.last.number
	}
	c.findings = append(c.findings, f)
}

// checkHeadHash compares the head with the line it names. Lines after that one come from a
// writer that was killed before it wrote the head.
func (c *checker) checkHeadHash() {
	switch {
	case c.head.Count == c.last.seq && c.head.Hash != c.last.hash:
		if c.lastAt >= 0 {
			c.blame(c.lastAt)
		}
	case c.head.Count > 0 && c.head.Count < c.last.seq && !c.holds(c.head.Count, c.head.Hash):
		c.findings = append(c.findings, Finding{Kind: foundBadHead, File: headName, Detail: fmt.Sprintf("it does not fit line %d of the log", c.head.Count)})
	}
}

// holds reports whether a line has that number and hash, or was reported as changed.
func (c *checker) holds(seq uint64, hash string) bool {
	return slices.ContainsFunc(c.bySeq[seq], func(i int) bool { return c.lines[i].hash == hash || c.blamed[i] })
}

// blame reports a line as changed, once.
func (c *checker) blame(i int) {
	if !c.blamed[i] {
		c.blamed[i] = true
		c.add(foundChanged, i, "the line is not what was written")
	}
}

func (c *checker) add(kind string, i int, detail string) {
	l := c.lines[i]
	c.findings = append(c.findings, Finding{Kind: kind, File: c.files[l.file], Line: l.number, Detail: detail})
}
