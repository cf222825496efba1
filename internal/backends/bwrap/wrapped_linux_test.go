package bwrap_test

import (
	"os"
	"testing"

	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// C1: the same holds for commands that the caller starts by itself.
func TestConformanceWrapped(t *testing.T) {
	testenv.Need(t, "bwrap")
	testenv.AlsoAsUser(t)
	if os.Geteuid() == 0 {
		return // a strict policy refuses it: the command could change the host's device nodes
	}
	backendtest.Run(t, entry, backendtest.Options{Wrapped: true})
}
