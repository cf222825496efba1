package backendtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/policy"
)

var commandCases = []testCase{
	{"command/arguments", nil, arguments},
	{"command/exit-codes", nil, exitCodes},
	{"command/signals", nil, signals},
	{"command/streams", nil, streams},
	{"command/working-folder", nil, workingFolders},
}

// C1 F11: arguments arrive unchanged.
func arguments(c *check) {
	args := []string{"", " ", "a b", "--", "--help", "-x", "new\nline", `quo"te`, "quo'te", "$HOME", "*", "\xff\xfe", "ünïcödé", "%s", strings.Repeat("x", 10000), ""}
	self, err := os.Executable()
	c.must(err)
	r := c.box().run(self, append([]string{argumentsWord, c.token}, args...)...)
	var answers []prober.Answer
	if err := json.Unmarshal(r.Stdout, &answers); err != nil || len(answers) != 1 {
		c.Fatalf("the probe said %q %q (%v)", r.Stdout, r.Stderr, err)
	}
	if !slices.Equal(answers[0].List, prober.Texts(args)) {
		c.Errorf("the arguments inside are %q, want %q", answers[0].List, args)
	}
}

// C1: every exit code of the command is passed on.
func exitCodes(c *check) {
	b := c.box()
	codes := []int{0, 1, 2, 77, 100, 124, 125, 126, 127, 128, 129, 137, 143, 192, 254, 255}
	for n := 5; n < 255; n += 25 {
		codes = append(codes, n)
	}
	for _, code := range codes {
		if r := b.run("sh", "-c", "exit "+itoa(code)); r.ExitCode != code || r.Signal != "" || r.Success() != (code == 0) {
			c.Errorf("exit %d gave %d (signal %q)", code, r.ExitCode, r.Signal)
		}
	}
}

// C1: it is reported whether the command exited or was ended by a signal.
func signals(c *check) {
	b := c.box()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGABRT, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGPIPE, syscall.SIGTERM} {
		r := b.run("sh", "-c", "kill -"+itoa(int(sig))+" $$; sleep 10")
		if r.ExitCode != 128+int(sig) || r.Signal != sig.String() {
			c.Errorf("signal %d gave %d (signal %q)", sig, r.ExitCode, r.Signal)
		}
	}
	r := b.run("sh", "-c", "trap 'exit 3' TERM; kill -TERM $$; sleep 10")
	if r.ExitCode != 3 || r.Signal != "" {
		c.Errorf("a signal that was caught gave %d (signal %q)", r.ExitCode, r.Signal)
	}
}

// C1: standard input, output and error reach the command.
func streams(c *check) {
	input := strings.Repeat("line\x00\xff\n", 50000)
	b := c.box()
	b.adjust = func(cmd *cloche.Cmd) { cmd.Stdin = strings.NewReader(input) }
	c.reads(b.do(op{Do: "stdin"})[0], input)
	c.reads(c.box().do(op{Do: "stdin"})[0], "")
	r := c.box().run("sh", "-c", "echo out; echo err >&2")
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" {
		c.Errorf("the streams gave %q and %q", r.Stdout, r.Stderr)
	}
}

// C1: the command starts in the folder that the caller names, or the workspace.
func workingFolders(c *check) {
	dir := c.dir(c.ws, "a/b")
	link := filepath.Join(c.ws, "link")
	c.must(os.Symlink(dir, link))
	for from, want := range map[string]string{"": c.ws, dir: dir, link: dir, c.outside: c.outside} {
		b := c.box()
		b.adjust = func(cmd *cloche.Cmd) { cmd.Dir = from }
		c.reads(b.do(op{Do: "cwd"})[0], want)
	}
}

var limitCases = []testCase{
	{"limits/time", []string{"limits.time"}, limitTime},
	{"limits/output", []string{"limits.output"}, limitOutput},
	{"limits/memory", []string{"limits.memory"}, limitMemory},
	{"limits/processes", []string{"limits.processes"}, limitProcesses},
	{"limits/open-files", []string{"limits.open_files"}, limitOpenFiles},
	{"limits/file-size", []string{"limits.file_size"}, limitFileSize},
}

// W7: a run that exceeds its time limit is ended, and says so.
func limitTime(c *check) {
	r := c.box(policy.WithLimits(policy.Limits{Time: 500 * time.Millisecond})).run("sh", "-c", "echo partial; sleep 60")
	if !r.TimedOut || r.Success() || string(r.Stdout) != "partial\n" {
		c.Errorf("the run gave %+v, want a timeout and the output before it", r)
	}
}

// W7: output beyond the limit ends the run, and is cut there.
func limitOutput(c *check) {
	const limit = 10000
	cmd := c.box(policy.WithLimits(policy.Limits{Output: limit})).probe(op{Do: "print", N: 8 << 20})
	r, err := cmd.Capture()
	if err != nil || !r.Truncated || r.Exceeded != "output" || len(r.Stdout)+len(r.Stderr) > limit || len(r.Stdout) == 0 {
		c.Errorf("the run gave %+v (%v), want output cut at %d", r, err, limit)
	}
}

// The memory of all processes together is limited.
func limitMemory(c *check) {
	const limit, much = 64 << 20, 200 << 20
	cmd := c.box(policy.WithLimits(policy.Limits{Memory: limit})).probe(op{Do: "alloc", N: much, M: 5000})
	r, err := cmd.Capture()
	if err != nil {
		c.Fatalf("the probe did not run: %v", err)
	}
	if r.Success() {
		if a := c.answers(r, make([]op, 1))[0]; a.OK() {
			c.Errorf("%d bytes were used for 5 s under a limit of %d", much, limit)
		}
	}
}

// The number of processes is limited.
func limitProcesses(c *check) {
	const limit, many = 60, 300
	cmd := c.box(policy.WithLimits(policy.Limits{Processes: limit})).probe(op{Do: "fork", N: many, M: 3000})
	r, err := cmd.Capture()
	if err != nil {
		c.Fatalf("the probe did not run: %v", err)
	}
	if r.Exceeded == "processes" {
		return
	}
	if a := c.answers(r, make([]op, 1))[0]; a.OK() || a.N > limit {
		c.Errorf("%d processes ran for 3 s under a limit of %d (%s)", a.N, limit, a.Error)
	}
}

// The number of descriptors of one process is limited.
func limitOpenFiles(c *check) {
	const limit = 100
	a := c.box(policy.WithLimits(policy.Limits{OpenFiles: limit})).do(op{Do: "files", N: 1000})[0]
	c.refusedWith(unix.EMFILE, a)
	if a.N > limit {
		c.Errorf("%d files were open under a limit of %d", a.N, limit)
	}
}

// The size of one file is limited.
func limitFileSize(c *check) {
	const limit = 1 << 20
	p := filepath.Join(c.ws, "large")
	a := c.box(policy.WithLimits(policy.Limits{FileSize: limit})).do(op{Do: "grow", Path: text(p), N: 4 << 20})[0]
	c.refusedWith(unix.EFBIG, a)
	if info, err := os.Stat(p); err != nil || info.Size() > limit {
		c.Errorf("the file is %v (%v)", info, err)
	}
}
