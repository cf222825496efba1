package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// memoryCases ask how much memory it takes to keep one command under a sandbox.
func memoryCases(_ context.Context, l *lab) ([]benchCase, error) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		return nil, fmt.Errorf("it needs /proc: %w", err)
	}
	dir, err := l.folder("memory")
	if err != nil {
		return nil, err
	}
	// The command says that it runs and then waits to be let go.
	return []benchCase{{
		title: "Memory of the process that was started", wants: everybody,
		job:       job{Argv: []string{"sh", "-c", "echo " + readyWord + "; read line || :"}, Workspace: dir},
		baselines: []string{"bwrap"}, unit: report.Bytes, budget: 10 * time.Second, sampler: peakMemory,
	}}, nil
}

const readyWord = "ready"

// peakMemory samples the most memory that the started process ever had, read
// while its command waits. The kernel's resource usage of a child cannot be
// used: a child counts the memory of the process that it was forked from. A
// contender that replaces itself with the command has the command's memory.
func peakMemory(ctx context.Context, _ *lab, r *runner) (sampler, error) {
	sample := func(ctx context.Context) (float64, error) { return readPeak(ctx, r.process) }
	_, err := sample(ctx)
	return sample, err
}

// readPeak starts a process, waits for its command, and reads the memory.
func readPeak(ctx context.Context, c command) (float64, error) {
	cmd := c.cmd(ctx)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	peak, err := readWhenReady(cmd, stdout)
	stdin.Close()
	// Everything is read first: Wait closes the pipe.
	_, copyErr := io.Copy(io.Discard, stdout)
	return peak, errors.Join(err, copyErr, cmd.Wait())
}

func readWhenReady(cmd *exec.Cmd, stdout io.Reader) (float64, error) {
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != readyWord {
		return 0, fmt.Errorf("the command did not say that it runs: %q", line)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return peakOf(string(status))
}

// peakOf finds the line "VmHWM:  1234 kB" in a process's status.
func peakOf(status string) (float64, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(rest), " ")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil || unit != "kB" {
			return 0, fmt.Errorf("VmHWM is %q", strings.TrimSpace(rest))
		}
		return value * 1024, nil
	}
	return 0, errors.New("the process has no VmHWM: it has ended, or the kernel does not say")
}
