package ownfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// A List is a file with a list that several processes read and change.
type List[T any] struct {
	// Path is the file. If it is empty, the list is always empty and cannot be changed.
	Path string
	// What names the file in errors: "trust store".
	What string
	// Field is the name of the list in the file. Lost says what to do if the file cannot be
	// read: "remove the file and trust your projects again".
	Field, Lost string
}

const listVersion = 1

// Read returns the entries. A missing file has none.
func (l *List[T]) Read() ([]T, error) {
	if l.Path == "" {
		return nil, nil
	}
	c, err := Read(l.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil // the folder is a file, so nothing can have been stored
	}
	if err != nil {
		return nil, Describe(l.What, l.Path, err)
	}
	if why := c.Exposed(); why != "" {
		return nil, &ExposedError{What: l.What, Path: l.Path, Why: why}
	}
	var fields map[string]json.RawMessage
	var version int
	var entries []T
	if err := json.Unmarshal(c.Data, &fields); err != nil {
		return nil, l.damaged(err)
	}
	if err := json.Unmarshal(fields["version"], &version); err != nil {
		return nil, l.damaged(fmt.Errorf("version: %w", err))
	}
	if version != listVersion {
		return nil, fmt.Errorf("%s %s: version %d is not known; use the cloche that wrote it, or remove the file", l.What, l.Path, version)
	}
	if err := json.Unmarshal(fields[l.Field], &entries); err != nil {
		return nil, l.damaged(fmt.Errorf("%s: %w", l.Field, err))
	}
	return entries, nil
}

func (l *List[T]) damaged(err error) error {
	return fmt.Errorf("%s %s: %w; %s", l.What, l.Path, err, l.Lost)
}

// Edit changes the list under a lock, so that two processes do not overwrite each
// other's changes. When it returns nil, the change is on the disk.
func (l *List[T]) Edit(change func([]T) ([]T, error)) error {
	if l.Path == "" {
		return fmt.Errorf("%s: there is no data folder; set XDG_DATA_HOME or HOME", l.What)
	}
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return Describe(l.What, l.Path, err)
	}
	lock := flock.New(l.Path+".lock", flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return Describe(l.What, l.Path, err)
	}
	defer func() { _ = lock.Close() }()
	entries, err := l.Read()
	if err != nil {
		return err
	}
	if entries, err = change(entries); err != nil {
		return err
	}
	if entries == nil {
		entries = []T{}
	}
	text, err := json.MarshalIndent(map[string]any{"version": listVersion, l.Field: entries}, "", "  ")
	if err != nil {
		return err
	}
	if err := Write(l.Path, append(text, '\n')); err != nil {
		return Describe(l.What, l.Path, err)
	}
	return nil
}
