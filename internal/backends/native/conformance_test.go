package native_test

import (
	"context"
	"os"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/testenv"
)

var entry = backend.Entry{Backend: native.New(func(s *host.Snapshot) host.Probe { return native.Probe(context.Background(), s) })}

func TestMain(m *testing.M) {
	backendtest.Main(entry)
	os.Exit(m.Run())
}

// The backend holds everything that the suite asks, as root and as an ordinary
// user.
func TestConformance(t *testing.T) {
	testenv.Need(t, "userns")
	backendtest.Run(t, entry, backendtest.Options{})
}

// N10: so does it in a session whose sandbox was made for another command.
func TestConformanceWarm(t *testing.T) {
	testenv.Need(t, "userns")
	backendtest.Run(t, entry, backendtest.Options{Warm: true})
}

// N10: and where commands share their processes.
func TestConformanceWarmFast(t *testing.T) {
	testenv.Need(t, "userns")
	backendtest.Run(t, entry, backendtest.Options{WarmFast: true})
}
