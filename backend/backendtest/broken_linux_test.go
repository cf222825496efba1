package backendtest_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/backend/backendtest"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/bwrap"
	"github.com/cloche-dev/cloche/internal/backends/none"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

var probeOnce = sync.OnceValue(func() host.Bwrap {
	s, err := machine.Collect("")
	if err != nil {
		return host.Bwrap{Probe: host.Probe{Reason: err.Error()}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return machine.ProbeBwrap(ctx, s)
})

// A broken backend is bwrap with something left out.
type broken struct {
	*bwrap.Backend
	fault func(*backend.Launch, *plan.Plan)
}

func (b broken) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	l, err := b.Backend.Compile(p, s)
	if err == nil && b.fault != nil {
		b.fault(l, p)
	}
	return l, err
}

func entryOf(fault func(*backend.Launch, *plan.Plan)) backend.Entry {
	return backend.Entry{Backend: broken{bwrap.New(bwrap.Config{}, func(*host.Snapshot) host.Bwrap { return probeOnce() }), fault}}
}

func TestMain(m *testing.M) {
	backendtest.Main(entryOf(nil), backend.Entry{Backend: none.New()})
	os.Exit(m.Run())
}

// options edits bubblewrap's arguments.
func options(edit func([]string) []string) func(*backend.Launch, *plan.Plan) {
	return func(l *backend.Launch, _ *plan.Plan) {
		for i, f := range l.Files {
			if f.Kind == backend.Data && bytes.HasPrefix(f.Data, []byte("--unshare-")) {
				words := strings.Split(strings.TrimSuffix(string(f.Data), "\x00"), "\x00")
				l.Files[i].Data = []byte(strings.Join(edit(words), "\x00") + "\x00")
			}
		}
	}
}

// without leaves an option and its n arguments out.
func without(option string, n int) func(*backend.Launch, *plan.Plan) {
	return options(func(words []string) []string {
		for i := 0; i < len(words); i++ {
			if words[i] == option {
				words = slices.Delete(words, i, i+1+n)
				i--
			}
		}
		return words
	})
}

// replacing puts one word in the place of another.
func replacing(old, new string) func(*backend.Launch, *plan.Plan) {
	return options(func(words []string) []string {
		for i, w := range words {
			if w == old {
				words[i] = new
			}
		}
		return words
	})
}

// noMasks drops the masks of folders that the policy hides.
func noMasks(l *backend.Launch, p *plan.Plan) {
	hidden := map[string]bool{}
	for _, e := range p.Paths {
		if e.Content == plan.Empty && e.Access == 0 && !strings.HasPrefix(e.Origin.Source, "built-in") {
			hidden[e.Path] = true
		}
	}
	options(func(words []string) []string {
		for i := 0; i+1 < len(words); i++ {
			if slices.Contains([]string{"--tmpfs", "--remount-ro"}, words[i]) && hidden[words[i+1]] {
				words = slices.Delete(words, i, i+2)
				i--
			}
		}
		return slices.DeleteFunc(words, func(w string) bool { return w == "" })
	})(l, p)
}

// noFileMasks drops the masks of files.
func noFileMasks(l *backend.Launch, p *plan.Plan) {
	options(func(words []string) []string {
		for i := 0; i+2 < len(words); i++ {
			if words[i] == "--ro-bind" && words[i+1] == "/dev/null" {
				words = slices.Delete(words, i, i+3)
				i--
			}
		}
		return words
	})(l, p)
}

// noPins drops the mounts that keep parents of masks in their places.
func noPins(l *backend.Launch, p *plan.Plan) {
	pins := p.Pins()
	options(func(words []string) []string {
		for i := 0; i+2 < len(words); i++ {
			if words[i] == "--bind-fd" && slices.Contains(pins, words[i+2]) {
				words = slices.Delete(words, i, i+3)
				i--
			}
		}
		return words
	})(l, p)
}

// leak adds a variable that nobody asked for.
func leak(l *backend.Launch, p *plan.Plan) {
	options(func(words []string) []string { return append(words, "--setenv", "LEAKED", "1") })(l, p)
}

// The suite finds each fault, and nothing where there is none.
func TestBrokenBackends(t *testing.T) {
	testenv.Need(t, "bwrap")
	tests := []struct {
		name  string
		fault func(*backend.Launch, *plan.Plan)
		finds []string
	}{
		{"no network namespace", without("--unshare-net", 0), []string{"network/host-listeners", "network/datagrams", "network/only-loopback", "network/every-address", "network/user-mode", "sockets/abstract"}},
		{"no ipc namespace", without("--unshare-ipc", 0), []string{"ipc/shared-memory", "ipc/message-queue"}},
		{"writable binds", replacing("--ro-bind-fd", "--bind-fd"), []string{"paths/write-outside", "paths/read-only-in-writable", "protect/file"}},
		{"no system call filter", without("--seccomp", 1), []string{"privileges/setuid", "privileges/namespaces", "network/families"}},
		{"no file masks", noFileMasks, []string{"masks/hidden-file", "masks/hidden-by-link"}},
		{"no pins", noPins, []string{"masks/parent-renamed", "protect/parent-renamed"}},
		{"no folder masks", noMasks, []string{"masks/hidden-folder", "masks/shown-in-hidden"}},
		{"a leaking environment", leak, []string{"env/scrubbed"}},
		{"gaps kept silent", func(l *backend.Launch, _ *plan.Plan) { l.Gaps = nil }, []string{"protect/missing", "protect/link", "masks/pattern", "masks/planted-link"}},
		{"no process limit", func(l *backend.Launch, _ *plan.Plan) { unlimit(l) }, []string{"limits/open-files", "limits/file-size"}},
		{"nothing", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			only := tt.finds
			if only == nil {
				only = []string{"paths/write", "masks/hidden", "protect/missing", "network/", "env/"}
			}
			e := entryOf(tt.fault)
			if tt.fault != nil {
				e.Backend = oneLayer{e.Backend}
			}
			found := check(t, e, only...)
			if !slices.Equal(found, slices.Sorted(slices.Values(tt.finds))) {
				t.Errorf("the suite finds %q, want %q", found, tt.finds)
			}
		})
	}
}

// unlimit takes the limits on descriptors and file sizes out of the init's
// arguments: two options behind the program's own numbers.
func unlimit(l *backend.Launch) {
	i := slices.Index(l.Argv, "/dev/cloche-init")
	l.Argv[i+6], l.Argv[i+7] = "-1", "-1"
}

// A backend that confines nothing passes no case, although it says so.
func TestUnconfinedBackend(t *testing.T) {
	found := check(t, backend.Entry{Backend: none.New()}, "paths/", "network/", "env/", "command/exit")
	if len(found) < 15 || !slices.Contains(found, "paths/write-outside") || !slices.Contains(found, "command/exit-codes") {
		t.Errorf("only %q fail without a sandbox", found)
	}
}

// check returns the names of the cases that fail.
func check(t *testing.T, entry backend.Entry, only ...string) []string {
	t.Helper()
	failures, err := backendtest.Check(t.TempDir(), entry, backendtest.Options{Only: only})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range failures {
		t.Log(f)
		names = append(names, f.Case)
	}
	return names
}
