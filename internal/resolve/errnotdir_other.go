//go:build !unix

package resolve

import "io/fs"

var errNotDir = fs.ErrNotExist
