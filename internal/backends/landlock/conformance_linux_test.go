package landlock_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/landlock"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// probeOnce asks the machine once, however many sandboxes are made.
var probeOnce = sync.OnceValue(func() host.Probe {
	s, err := machine.Collect("")
	if err != nil {
		return host.Probe{Reason: err.Error()}
	}
	return landlock.Probe(context.Background(), s)
})

var entry = backend.Entry{Backend: landlock.New(func(*host.Snapshot) host.Probe { return probeOnce() })}

func TestMain(m *testing.M) {
	backendtest.Main(append(olderEntries(), entry)...)
	os.Exit(m.Run())
}

// W3 N4: what the backend does not declare as a gap it holds, as the user that
// runs the test and as an ordinary one.
func TestConformance(t *testing.T) {
	testenv.Need(t, "landlock")
	testenv.AlsoAsUser(t)
	backendtest.Run(t, entry, backendtest.Options{})
}
