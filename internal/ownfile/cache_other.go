//go:build !linux

package ownfile

import "errors"

// ReadCache fails: on this system nothing is remembered between processes.
func ReadCache(string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// WriteCache fails.
func WriteCache(string, []byte) error { return errors.ErrUnsupported }
