//go:build !linux

package ownfile

import "errors"

// ReadCache reads nothing: here nothing is remembered between processes.
func ReadCache(string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// WriteCache writes nothing.
func WriteCache(string, []byte) error { return errors.ErrUnsupported }
