package review

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Merge merges a changed file with what the host has made of it since. The error says why that is not possible.
func (r *Review) Merge(c *Change) (*Merged, error) {
	o, err := r.mergeable(c)
	if err != nil {
		return nil, err
	}
	upper, lower, err := r.trees(c.at.root)
	if err != nil {
		return nil, err
	}
	defer upper.close()
	defer lower.close()
	m := &Merged{}
	if m.Host, err = mergeSide(lower, c.Path, false, &c.at.lower); err != nil {
		return nil, fmt.Errorf("the host's file: %w", err)
	}
	command, err := mergeSide(upper, c.at.upperPath, true, &c.at.upper)
	if err != nil {
		return nil, fmt.Errorf("the command's file: %w", err)
	}
	var ok bool
	if m.Mode, ok = mergeModes(o.Mode, c.OldMode, c.Mode); !ok {
		return nil, fmt.Errorf("both changed its permissions, from %03o to %03o on the host and to %03o inside", o.Mode, c.OldMode, c.Mode)
	}
	m.Text, m.Overlaps = mergeLines(o.text, m.Host, command)
	return m, nil
}

// mergeable returns the original of a change, or why it cannot be merged.
func (r *Review) mergeable(c *Change) (*original, error) {
	switch {
	case c.Unit != "":
		return nil, errors.New("a git directory is applied as a whole")
	case c.at.root.File:
		return nil, errors.New("no copy is kept of a writable path that is a file")
	case c.Type != File || c.Was != "" || c.Kind != Changed && c.Kind != Mode:
		return nil, errors.New("only a file that the host and the command have changed can be merged")
	}
	o := r.readOriginal(c.at.root, c.at.upperPath)
	switch {
	case o == nil:
		return nil, errors.New("no copy was kept of what the command began with")
	case o.Conflict:
		return nil, errors.New("no copy was kept of what the command began with: the host changed it first")
	case o.NoText != "":
		return nil, errors.New("no copy was kept of what the command began with: " + o.NoText)
	}
	return o, nil
}

func mergeSide(t tree, rel string, own bool, seen *unix.Stat_t) ([]byte, error) {
	if seen.Size > MaxText {
		return nil, errors.New("it is larger than 8 MiB")
	}
	d, name, err := t.parent(rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	text, err := readSeen(d, name, own, seen, MaxText)
	if err == nil && (&Content{Text: text}).IsBinary() {
		err = errors.New("it is binary")
	}
	return text, err
}

// mergeConflicts marks those conflicts that can be merged, and notes why the others cannot. Those of which a part was chosen have
// their texts.
func (r *Review) mergeConflicts(list []*Change, patched map[string]Patched) {
	for _, c := range list {
		if c.Conflict == "" || c.NotCarried != "" || patched[c.Abs()].Of != nil {
			continue
		}
		m, err := r.Merge(c)
		switch {
		case err != nil:
			c.NotMerged = err.Error()
		case m.Overlaps > 0:
			c.Overlaps = m.Overlaps
		default:
			c.merged = true
		}
	}
}

// textFor returns the text and the permissions of the new file if an apply does not take all of the command's file as it is.
func (a *applier) textFor(c *Change) (text []byte, mode uint32, ok bool, err error) {
	if c.merged {
		m, err := a.r.Merge(c)
		if err == nil && m.Overlaps > 0 {
			err = errChanged
		}
		if err != nil {
			return nil, 0, false, err
		}
		return m.Text, m.Mode, true, nil
	}
	p, ok := a.patched[c.Abs()]
	mode = c.Mode
	if ok && c.Conflict != "" {
		mode = c.OldMode // a part of a merge leaves the host's
	}
	return p.Text, mode, ok, nil
}
