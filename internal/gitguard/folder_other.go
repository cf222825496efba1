//go:build !linux

package gitguard

import "errors"

// Changes are brokered on Linux only. Elsewhere every folder counts as a git
// directory of which nothing can be read, so that all that is notable is
// refused.
type folder struct {
	fd  int
	sub string
}

func (f folder) kind(string) kind               { return other }
func (f folder) has(string) bool                { return true }
func (f folder) read(string) (File, error)      { return File{}, errors.ErrUnsupported }
func (f folder) names(string) ([]string, error) { return nil, errors.ErrUnsupported }
func (f folder) owned(string) (File, error)     { return File{}, errors.ErrUnsupported }
func (f File) put() error                       { return errors.ErrUnsupported }
