package native_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// launchesVariable is how many commands TestManyLaunches starts.
const (
	launchesVariable = "CLOCHE_TEST_LAUNCHES"
	fewLaunches      = 500
)

// N10 F12: however many commands are started, nothing is left behind by them in
// this process, and no process. What may grow for a while, threads and memory, is
// compared between the first part of the launches and the end.
func TestManyLaunches(t *testing.T) {
	testenv.Need(t, "userns")
	total := fewLaunches
	if text := os.Getenv(launchesVariable); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", launchesVariable, err)
		}
	}
	parts := map[string]int{"cold": total / 5, "warm": total * 2 / 5, "fast": total * 2 / 5}
	for _, mode := range []string{"cold", "warm", "fast"} {
		t.Run(mode, func(t *testing.T) {
			s := open(t, newBackend(), mode, t.TempDir())
			defer s.Close()
			launch(t, s, parts[mode]/5)
			before := usageNow(t)
			started := time.Now()
			launch(t, s, parts[mode]-parts[mode]/5)
			after := usageNow(t)
			// The end of a run releases its mounts after Wait has returned.
			testenv.Becomes(func() bool { after = usageNow(t); return !after.leaves(before) })
			t.Logf("%d commands, %v each; before %v, after %v", parts[mode], time.Since(started)/time.Duration(parts[mode]-parts[mode]/5), before, after)
			after.check(t, before)
		})
	}
}

func open(t *testing.T, b backend.Backend, mode, workspace string) *cloche.Session {
	t.Helper()
	registry, err := backend.NewRegistry(backend.Entry{Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	s, err := cloche.Open(t.Context(), policy.Workspace(workspace), append(modes[mode], cloche.WithRegistry(registry), cloche.WithWorkspace(workspace))...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// launch runs commands, three at a time.
func launch(t *testing.T, s *cloche.Session, n int) {
	t.Helper()
	work := make(chan struct{})
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for range work {
				if err := s.Command(t.Context(), "/bin/true").Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range n {
		work <- struct{}{}
	}
	close(work)
	workers.Wait()
}

// A usage is what this process has of what launches could leave behind.
type usage struct {
	descriptors, threads, mounts, children int
	heap, resident                         int
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d mounts, %d children, %d KiB heap, %d KiB resident",
		u.descriptors, u.threads, u.mounts, u.children, u.heap>>10, u.resident>>10)
}

func usageNow(t *testing.T) usage {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers have let go
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return usage{
		descriptors: entries(t, "/proc/self/fd"), threads: entries(t, "/proc/self/task"),
		mounts: strings.Count(read(t, "/proc/self/mountinfo"), "\n"), children: children(t),
		heap: int(memory.HeapAlloc), resident: residentSize(t),
	}
}

// check allows what the runtime may do by itself: a few threads more, and
// memory that is not given back at once. Of brokers' threads two are kept once there
// were so many, each with a descriptor, and a spare of a session has some; what each
// launch left would be hundreds.
// leaves reports whether there are more descriptors, mounts or children than before.
func (u usage) leaves(before usage) bool {
	const moreDescriptors = 8
	return u.descriptors > before.descriptors+moreDescriptors || u.mounts > before.mounts || u.children > before.children+1
}

func (u usage) check(t *testing.T, before usage) {
	t.Helper()
	const moreThreads, moreHeap, moreResident = 12, 1 << 20, 24 << 20
	if u.leaves(before) {
		t.Errorf("something is left: %v; before: %v", u, before)
	}
	if u.threads > before.threads+moreThreads || u.heap > before.heap+moreHeap || u.resident > before.resident+moreResident {
		t.Errorf("it grows: %v; before: %v", u, before)
	}
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// children counts the processes that this one has started and not reaped.
func children(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil { // or the thread is gone
			n += len(strings.Fields(string(text)))
		}
	}
	return n
}

// residentSize is the memory of this process, in bytes.
func residentSize(t *testing.T) int {
	t.Helper()
	fields := strings.Fields(read(t, "/proc/self/statm"))
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
