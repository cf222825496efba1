//go:build !linux

package gitguard

import (
	"errors"

	"github.com/cloche-dev/cloche/plan"
)

// Changes are brokered on Linux only. Elsewhere nothing is known of any
// directory, so that all that is notable is refused.
type folder struct {
	fd     int
	sub    string
	absent bool
}

func (f folder) kind(string) kind               { return unreadable }
func (f folder) read(string) (File, error)      { return File{}, errors.ErrUnsupported }
func (f folder) names(string) ([]string, error) { return nil, errors.ErrUnsupported }
func (f folder) owned(string) (File, error)     { return File{}, errors.ErrUnsupported }
func (f File) put() error                       { return errors.ErrUnsupported }

// JudgeLine allows everything where no backend guards git directories.
func JudgeLine(*plan.Plan, plan.Path, string) Verdict { return allowed }
