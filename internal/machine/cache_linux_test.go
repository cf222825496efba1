package machine_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A cacheBed is a snapshot with a bwrap that counts its trials.
type cacheBed struct {
	t        *testing.T
	snapshot *host.Snapshot
	counter  string
	folder   string
}

func newCacheBed(t *testing.T, body string) *cacheBed {
	t.Helper()
	counter := filepath.Join(t.TempDir(), "count")
	s := with(t, fakeBwrap(t, "echo trial >> "+counter+"\n"+body))
	return &cacheBed{t: t, snapshot: s, counter: counter, folder: filepath.Join(t.TempDir(), "cache", "cloche")}
}

func (c *cacheBed) file() string { return filepath.Join(c.folder, "probes") }

func (c *cacheBed) trials() int {
	text, err := os.ReadFile(c.counter)
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return strings.Count(string(text), "trial")
}

// ask asks like a new process and returns whether that made a trial.
func (c *cacheBed) ask(want host.Outcome) bool {
	c.t.Helper()
	before := c.trials()
	b := machine.NewProbeCache(c.folder).Bwrap(c.t.Context(), c.snapshot, nil)
	if b.Probe.Outcome != want || b.Path != c.snapshot.Bwrap.Path || b.Version != "9.9.9" || !b.Has("bind-fd") {
		c.t.Errorf("got %+v, want %v", b, want)
	}
	return c.trials() > before
}

// filled is a bed whose file holds a yes.
func filled(t *testing.T) *cacheBed {
	t.Helper()
	c := newCacheBed(t, workingBody)
	if !c.ask(host.Yes) {
		t.Fatal("the first answer was made without a trial")
	}
	return c
}

func (c *cacheBed) checkPrivate() {
	c.t.Helper()
	for p, want := range map[string]os.FileMode{c.folder: os.ModeDir | 0o700, c.file(): 0o600} {
		fi, err := os.Lstat(p)
		if err != nil {
			c.t.Fatal(err)
		}
		if fi.Mode() != want {
			c.t.Errorf("%s has mode %v, want %v", p, fi.Mode(), want)
		}
	}
	left, err := os.ReadDir(c.folder)
	if err != nil || len(left) != 1 {
		c.t.Errorf("the folder holds %v (%v), want one file", left, err)
	}
}

// F2: a yes is remembered from process to process.
func TestCacheAcrossProcesses(t *testing.T) {
	testenv.AlsoAsUser(t)
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	c := filled(t)
	c.checkPrivate()
	if c.ask(host.Yes) {
		t.Error("a second process made a trial")
	}
}

// F2: neither a no nor an inconclusive answer is remembered.
func TestCacheForgets(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		want host.Outcome
	}{
		"no":           {"exit 1", host.No},
		"inconclusive": {"kill -9 $$", host.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want == host.No {
				testenv.Need(t, "userns")
			}
			c := newCacheBed(t, tt.body)
			cache := machine.NewProbeCache(c.folder)
			for range 2 {
				before := c.trials()
				if b := cache.Bwrap(t.Context(), c.snapshot, nil); b.Probe.Outcome != tt.want {
					t.Errorf("got %+v, want %v", b.Probe, tt.want)
				}
				if c.trials() == before {
					t.Error("the answer was remembered")
				}
			}
			if _, err := os.Lstat(c.file()); !os.IsNotExist(err) {
				t.Errorf("there is a file: %v", err)
			}
		})
	}
}

// A file that others could have written, or that makes no sense, is ignored and
// replaced.
func TestCacheDistrustsFile(t *testing.T) {
	testenv.AlsoAsUser(t)
	tests := map[string]func(t *testing.T, c *cacheBed){
		"corrupt":     func(t *testing.T, c *cacheBed) { write(t, c.file(), "{\"version\":1,") },
		"empty":       func(t *testing.T, c *cacheBed) { write(t, c.file(), "") },
		"binary":      func(t *testing.T, c *cacheBed) { write(t, c.file(), "\x00\xff\x00") },
		"huge":        func(t *testing.T, c *cacheBed) { write(t, c.file(), strings.Repeat(" ", 1<<20)) },
		"other form":  func(t *testing.T, c *cacheBed) { edit(t, c.file(), "probes 3", "probes 99") },
		"other boot":  func(t *testing.T, c *cacheBed) { edit(t, c.file(), `Boot:"`, `Boot:"0`) },
		"other user":  func(t *testing.T, c *cacheBed) { edit(t, c.file(), "UID:", "UID:9") },
		"other inode": func(t *testing.T, c *cacheBed) { edit(t, c.file(), "Inode:0x", "Inode:0x9") },
		"others can write it": func(t *testing.T, c *cacheBed) {
			must(t, os.Chmod(c.file(), 0o602))
		},
		"the group can write it": func(t *testing.T, c *cacheBed) {
			must(t, os.Chmod(c.file(), 0o620))
		},
		"a link": func(t *testing.T, c *cacheBed) {
			must(t, os.Rename(c.file(), c.counter+".file"))
			must(t, os.Symlink(c.counter+".file", c.file()))
		},
		"a FIFO": func(t *testing.T, c *cacheBed) {
			must(t, os.Remove(c.file()))
			must(t, syscall.Mkfifo(c.file(), 0o600))
		},
		"somebody else's": func(t *testing.T, c *cacheBed) {
			testenv.Need(t, "root")
			must(t, os.Chown(c.file(), testenv.UserID, testenv.UserID))
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			c := filled(t)
			spoil(t, c)
			if !c.ask(host.Yes) {
				t.Error("the file was believed")
			}
			c.checkPrivate()
			if c.ask(host.Yes) {
				t.Error("the file was not replaced")
			}
		})
	}
}

func TestCacheKeepsLinkTarget(t *testing.T) {
	c := newCacheBed(t, workingBody)
	target := filepath.Join(t.TempDir(), "precious")
	write(t, target, "precious")
	must(t, os.MkdirAll(c.folder, 0o700))
	must(t, os.Symlink(target, c.file()))
	c.ask(host.Yes)
	if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
		t.Errorf("the link's target is now %q (%v)", text, err)
	}
}

// A folder that others can write is neither read nor written.
func TestCacheDistrustsFolder(t *testing.T) {
	c := filled(t)
	must(t, os.Chmod(c.folder, 0o777))
	for range 2 {
		if !c.ask(host.Yes) {
			t.Error("a file in a folder that others can write was believed")
		}
	}
}

// A changed binary, or a changed sysctl, asks anew.
func TestCacheKey(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *cacheBed){
		"mtime": func(t *testing.T, c *cacheBed) {
			must(t, os.Chtimes(c.snapshot.Bwrap.Path, time.Time{}, time.Unix(1, 1)))
		},
		"size": func(t *testing.T, c *cacheBed) {
			fi, err := os.Stat(c.snapshot.Bwrap.Path)
			must(t, err)
			text, err := os.ReadFile(c.snapshot.Bwrap.Path)
			must(t, err)
			write(t, c.snapshot.Bwrap.Path, string(text)+"\n")
			must(t, os.Chtimes(c.snapshot.Bwrap.Path, time.Time{}, fi.ModTime()))
		},
		"sysctl":   func(_ *testing.T, c *cacheBed) { c.snapshot.Namespaces.MaxUser++ },
		"apparmor": func(_ *testing.T, c *cacheBed) { c.snapshot.Namespaces.AppArmorRestrict = 1 },
		"kernel":   func(_ *testing.T, c *cacheBed) { c.snapshot.Kernel += "-next" },
	} {
		t.Run(name, func(t *testing.T) {
			c := filled(t)
			change(t, c)
			if !c.ask(host.Yes) {
				t.Error("the old answer was given")
			}
		})
	}
}

// Several binaries live side by side in the file, and the path that comes back
// is always the one that was asked about.
func TestCacheTwoBinaries(t *testing.T) {
	a, b := filled(t), newCacheBed(t, workingBody)
	b.folder = a.folder
	if !b.ask(host.Yes) {
		t.Error("an answer was given for another binary")
	}
	if a.ask(host.Yes) || b.ask(host.Yes) {
		t.Error("one answer drove the other out")
	}
}

// Within a process a probe that many ask for is made once.
func TestCacheConcurrent(t *testing.T) {
	c := newCacheBed(t, workingBody)
	var cache machine.ProbeCache
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if b := cache.Bwrap(t.Context(), c.snapshot, nil); b.Probe.Outcome != host.Yes {
				t.Errorf("got %+v", b.Probe)
			}
		})
	}
	wg.Wait()
	after := c.trials()
	cache.Bwrap(t.Context(), c.snapshot, nil)
	if after != 1 || c.trials() != 1 {
		t.Errorf("%d trials, then %d", after, c.trials())
	}
}

// Who waits for another's probe can give up.
func TestCacheGiveUp(t *testing.T) {
	slow := newCacheBed(t, "sleep 600")
	var cache machine.ProbeCache
	first, cancelFirst := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { cache.Bwrap(first, slow.snapshot, nil) })
	testenv.Eventually(t, "the first probe starts", func() bool { return slow.trials() > 0 })
	second, cancelSecond := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelSecond()
	if b := cache.Bwrap(second, slow.snapshot, nil); b.Probe.Outcome != host.Unknown {
		t.Errorf("got %+v", b.Probe)
	}
	cancelFirst()
	wg.Wait()
}

// askUserNS asks a new cache, as another process would.
func askUserNS(ctx context.Context, folder string, s *host.Snapshot) host.Probe {
	return machine.NewProbeCache(folder).Ask(ctx, s, "userns", func(ctx context.Context) host.Probe { return machine.ProbeUserNS(ctx, s) })
}

// N4
func TestCacheUserNS(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "userns")
	folder := filepath.Join(t.TempDir(), "cloche")
	s := collect(t)
	for range 2 {
		if p := askUserNS(t.Context(), folder, s); p.Outcome != host.Yes {
			t.Errorf("got %+v", p)
		}
	}
	// A context that has ended lets no probe succeed: a yes is a remembered one.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if p := askUserNS(ended, folder, s); p.Outcome != host.Yes {
		t.Errorf("the file was not used: %+v", p)
	}
	if p := askUserNS(ended, "", s); p.Outcome != host.Unknown {
		t.Errorf("a canceled probe says %+v", p)
	}
}

func TestCacheMissingBwrap(t *testing.T) {
	s := collect(t)
	s.Bwrap = host.Bwrap{}
	if b := new(machine.ProbeCache).Bwrap(t.Context(), s, nil); b.Probe.Cause != cause.Missing {
		t.Errorf("got %+v", b)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

func edit(t *testing.T, file, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q: %s", file, old, text)
	}
	write(t, file, strings.ReplaceAll(string(text), old, replacement))
}

func BenchmarkCachedBwrap(b *testing.B) {
	testenv.Need(b, "bwrap")
	s, err := machine.Collect("")
	if err != nil {
		b.Fatal(err)
	}
	folder := b.TempDir()
	for b.Loop() {
		if got := machine.NewProbeCache(folder).Bwrap(b.Context(), s, nil); got.Probe.Outcome != host.Yes {
			b.Fatal(got.Probe)
		}
	}
}
