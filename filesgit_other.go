//go:build !linux

package cloche

import "github.com/cloche-dev/cloche/plan"

// gitRefusal has nothing to say where no backend guards git directories.
func (s *Session) gitRefusal(string, plan.Path) *plan.Verdict { return nil }
