//go:build amd64 || arm64

package sysprog

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/initprog"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// sandboxed returns a function that runs /bin/true in a whole sandbox.
func sandboxed(b *testing.B) func() {
	testenv.Need(b, "userns")
	fd, err := initFile()
	if err != nil {
		b.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	dir, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { null.Close(); dir.Close() })
	c := initprog.Config{StatusFD: -1, LifelineFD: -1, Processes: -1, OpenFiles: -1, FileSize: -1, Path: "/bin/true"}
	s := &sample{uid: os.Getuid(), gid: os.Getgid(), writable: dir.Name(), argv: c.Argv("cloche-init")}
	s.build()
	n := int(null.Fd())
	o := Options{CloneFlags: sampleFlags, Files: []int{n, n, n, n, n, fd, int(dir.Fd())}}
	return func() {
		if code := exitCode(b, &s.Program, o); code != 0 {
			b.Fatal("exit code", code)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	one := sandboxed(b)
	for b.Loop() {
		one()
	}
}

// BenchmarkRunPlain is a program without namespaces: what the launcher costs
// itself, beside an exec.
func BenchmarkRunPlain(b *testing.B) {
	p := program(func(_ *Program, b Block) { resetSignals(b); execve(b, "/bin/true", "true") })
	for b.Loop() {
		exitCode(b, p, Options{})
	}
}

// BenchmarkLoad is the cost of laying out a program of 1000 path rules.
func BenchmarkLoad(b *testing.B) {
	p := program(func(_ *Program, b Block) {
		for range 1000 {
			tree := b.OpenTree(Cwd(), "/some/folder/that/is/bound", OpenTreeClone)
			b.MountSetattr(tree, "", AtEmptyPath, MountAttr{Set: MountAttrReadOnly})
			b.Attach(tree, Cwd(), "some/folder/that/is/bound")
			b.Close(tree)
		}
		b.Exit(0)
	})
	for b.Loop() {
		if _, err := Load(p); err != nil {
			b.Fatal(err)
		}
	}
}

// heap is memory that has been written to, so that a copy would cost something.
func heap(size int) [][]byte {
	var list [][]byte
	for ; size > 0; size -= 1 << 20 {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		list = append(list, block)
	}
	return list
}

// A way is one way to run a command, with the times it took.
type way struct {
	run   func()
	times []time.Duration
}

func (w *way) measure() {
	start := time.Now()
	w.run()
	w.times = append(w.times, time.Since(start))
}

func (w *way) median() float64 {
	slices.Sort(w.times)
	return float64(w.times[len(w.times)/2])
}

func (w *way) best() float64 { return float64(slices.Min(w.times)) }

// BenchmarkCompare runs a whole sandbox, a plain exec and bubblewrap in turns,
// so that their ratios hold on a noisy machine, and reports those of the
// medians, and against bubblewrap that of the best times, which other load on
// the machine disturbs less: with a small heap, and with 1 GiB that a fork would
// have to copy the page tables of. The sandbox is timed until the kernel has
// taken down its namespaces; bubblewrap ends before that.
func BenchmarkCompare(b *testing.B) {
	b.Run("heap=small", compare)
	b.Run("heap=1GiB", func(b *testing.B) {
		large := heap(1 << 30)
		compare(b)
		runtime.KeepAlive(large)
	})
}

func compare(b *testing.B) {
	sandbox, plain := &way{run: sandboxed(b)}, &way{run: func() { execute(b, "/bin/true") }}
	ways := []*way{sandbox, plain}
	var bwrap *way
	if path, err := exec.LookPath("bwrap"); err == nil {
		bwrap = &way{run: func() {
			execute(b, path, "--unshare-all", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc", "/bin/true")
		}}
		ways = append(ways, bwrap)
	}
	for b.Loop() {
		for _, w := range ways {
			w.measure()
		}
	}
	b.ReportMetric(sandbox.median()/plain.median(), "run/exec")
	if bwrap != nil {
		b.ReportMetric(sandbox.median()/bwrap.median(), "run/bwrap")
		b.ReportMetric(sandbox.best()/bwrap.best(), "best-run/bwrap")
	}
}

func execute(b *testing.B, path string, args ...string) {
	if err := exec.Command(path, args...).Run(); err != nil {
		b.Fatalf("%s: %v", path, err)
	}
}
