package bwrap_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// probeOnce asks the machine once, however many sandboxes are made.
var probeOnce = sync.OnceValue(func() host.Bwrap {
	s, err := machine.Collect("")
	if err != nil {
		return host.Bwrap{Probe: host.Probe{Reason: err.Error()}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return machine.ProbeBwrap(ctx, s)
})

func probe(*host.Snapshot) host.Bwrap { return probeOnce() }

var entry = backend.Entry{Backend: bwrap.New(bwrap.Config{}, probe)}

func TestMain(m *testing.M) {
	backendtest.Main(entry)
	os.Exit(m.Run())
}

// The whole suite, as the user that runs the test and as an ordinary one.
func TestConformance(t *testing.T) {
	testenv.Need(t, "bwrap")
	testenv.AlsoAsUser(t)
	backendtest.Run(t, entry, backendtest.Options{})
}
