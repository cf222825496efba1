//go:build !unix

package cli

import (
	"errors"
	"os"
)

// openReport has no flags here: there are no FIFOs with a name, and a symbolic
// link takes a privilege to make.
const openReport = 0

func inheritedFile(int) (*os.File, error) {
	return nil, errors.New("descriptors cannot be inherited by number on this system; use --report FILE")
}
