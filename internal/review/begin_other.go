//go:build !linux

package review

import "errors"

var errNoLinux = errors.New("reviews need Linux: this system has no overlayfs")

// Begin fails: there is no overlayfs.
func (s Store) Begin(workspace, name string, roots []string) (*Review, error) { return nil, errNoLinux }

// Close does nothing.
func (r *Review) Close() error { return nil }

type place struct{}

// Keep fails.
func (r *Review) Keep() error { return errNoLinux }

// Merge fails.
func (r *Review) Merge(c *Change) (*Merged, error) { return nil, errNoLinux }

// Resume fails, like all others.
func (s Store) Resume(workspace, name string) (*Review, error) { return nil, errNoLinux }

// Look fails.
func (s Store) Look(workspace, name string) (*Review, error) { return nil, errNoLinux }

// List fails.
func (r *Review) List(want Filter, protect Protect) ([]*Change, error) { return nil, errNoLinux }

// Looked fails.
func (r *Review) Looked(list []*Change, whole bool) error { return errNoLinux }

// Contents fails.
func (r *Review) Contents(c *Change) (old, now Content, err error) { return old, now, errNoLinux }

// Apply fails.
func (r *Review) Apply(o Options) (*Outcome, error) { return nil, errNoLinux }

// Undo fails.
func (r *Review) Undo() (*Outcome, error) { return nil, errNoLinux }

// Discard fails.
func (r *Review) Discard(want Filter) ([]*Change, error) { return nil, errNoLinux }

// Status fails.
func (s Store) Status() ([]Status, error) { return nil, errNoLinux }
