//go:build !linux

package privatefile

import "errors"

// Read reads nothing: elsewhere nothing is remembered between processes.
func Read(string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// Write writes nothing.
func Write(string, []byte) error { return errors.ErrUnsupported }
