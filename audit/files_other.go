//go:build !linux

package audit

import (
	"io/fs"
	"os"
)

// allocated is not known here.
func allocated(fs.FileInfo) int64 { return 0 }

// allocate does nothing here: on a full disk the end of a run may be lost.
func allocate(*os.File, int64, int64) error { return nil }
