//go:build !linux

package network

import (
	"errors"
	"os"
)

// Start is refused: namespaces are Linux's.
func Start(*os.File, Config) (*Running, error) { return nil, errors.ErrUnsupported }
