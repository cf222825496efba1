package native_test

import (
	"testing"

	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// C1: the same holds for commands that the caller starts by itself, through the
// launcher.
func TestConformanceWrapped(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	backendtest.Run(t, entry, backendtest.Options{Wrapped: true})
}
