package review

import (
	"io"

	"golang.org/x/sys/unix"
)

// Contents returns what a changed file was and is: a text of a file, or the target of a link.
func (r *Review) Contents(c *Change) (old, now Content, err error) {
	upper, lower, err := r.trees(c.at.root)
	if err != nil {
		return old, now, err
	}
	defer upper.close()
	defer lower.close()
	oldPath := c.Path
	if c.From != "" {
		oldPath = c.From
	}
	if c.Kind != Added {
		if old, err = content(lower, oldPath, false); err != nil {
			return old, now, err
		}
	}
	if c.Kind != Deleted {
		now, err = content(upper, c.at.upperPath, true)
	}
	return old, now, err
}

func content(t tree, rel string, own bool) (Content, error) {
	d, name, err := t.parent(rel)
	if err != nil {
		return Content{}, err
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := fstatat(d, name, &st); err != nil {
		return Content{}, err
	}
	c := Content{Exists: true, Type: typeOf(st.Mode), Mode: perm(st.Mode), Size: st.Size}
	switch c.Type {
	case Link:
		target, err := readLink(d, name)
		c.Text = []byte(target)
		return c, err
	case File:
		if c.Size > MaxText {
			c.TooLarge = true
			return c, nil
		}
		f, err := openFile(d, name, own)
		if err != nil {
			return c, err
		}
		defer f.Close()
		c.Text, err = io.ReadAll(io.LimitReader(f, MaxText))
		return c, err
	}
	return c, nil
}
