package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
)

// storeName returns a folder's name in cloche's store: the base name for people, and a hash of
// the whole path for uniqueness.
func storeName(p string) string {
	sum := sha256.Sum256([]byte(p))
	base := path.Base(p)
	if base == "/" || len(base) > 64 {
		base = "folder"
	}
	return base + "-" + hex.EncodeToString(sum[:8])
}
