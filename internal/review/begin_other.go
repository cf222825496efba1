//go:build !linux

package review

import "errors"

var errNoLinux = errors.New("reviews need Linux: this system has no overlayfs")

// Begin fails: there is no overlayfs.
func (s Store) Begin(workspace, name string, roots []string) (*Review, error) { return nil, errNoLinux }

// Close does nothing.
func (r *Review) Close() error { return nil }
