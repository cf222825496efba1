//go:build !linux

package supervise

import (
	"os"
	"os/exec"

	"github.com/cloche-dev/cloche/backend"
)

// Open opens the descriptors of a launch that the caller starts by itself.
// Only launches for Linux have any.
func Open(l *backend.Launch, _ *os.File) ([]*os.File, error) {
	if l.Init || l.MapRoot || len(l.Files) > 0 {
		return nil, &SetupError{Backend: l.Backend, Step: "start the launcher", Detail: "this launch needs Linux"}
	}
	return nil, prepare(l)
}

// MapRoot does nothing here: there are no user namespaces.
func MapRoot(*exec.Cmd, *backend.Launch) error { return nil }
