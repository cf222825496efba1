//go:build !unix

package cli

import (
	"errors"
	"os"
)

var errUseWSL = errors.New("not available on this system; on Windows, run cloche inside WSL")

const openReport = 0

func inheritedFile(int) (*os.File, error) { return nil, errUseWSL }

func replaceProcess(string, []string, ...int) error { return errUseWSL }
