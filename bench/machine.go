package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/bench/internal/report"
)

// machineFacts name what the numbers depend on.
func (l *lab) machineFacts(ctx context.Context) []report.Fact {
	facts := []report.Fact{
		{Name: "CPU", Value: cpuModel()},
		{Name: "cores", Value: fmt.Sprint(runtime.NumCPU())},
		{Name: "kernel", Value: runtime.GOOS + " " + fileLine("/proc/sys/kernel/osrelease") + " " + runtime.GOARCH},
		{Name: "user", Value: userKind()},
		{Name: "file system of the disk", Value: fileSystem(l.dir)},
		{Name: "load at the start", Value: loadAverage()},
		{Name: "Go", Value: runtime.Version()},
		{Name: "cloche", Value: versionLine(ctx, l.cloche, "version")},
		{Name: "rounds", Value: l.roundsWords()},
		{Name: "order of the rounds", Value: fmt.Sprintf("-seed %d", l.seed)},
	}
	for _, name := range sortedPeers(l.peers) {
		facts = append(facts, report.Fact{Name: name, Value: l.peers[name].version})
	}
	return facts
}

func sortedPeers(peers map[string]peer) []string {
	var names []string
	for name := range peers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// cpuModel is what the kernel calls the processor; arm64 kernels give no name.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unnamed " + runtime.GOARCH
}

func fileLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// loadAverage is how busy the machine was before.
func loadAverage() string {
	one, _, _ := strings.Cut(fileLine("/proc/loadavg"), " ")
	return one
}

func userKind() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "an ordinary user"
}

func (l *lab) roundsWords() string {
	switch {
	case l.rounds > 0:
		return fmt.Sprint(l.rounds)
	case l.quick:
		return "quick: as many as fit a short time for each table"
	}
	return "as many as fit the time for each table"
}

// versionLine is the first line that a program says about its version.
func versionLine(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		return "unknown version"
	}
	return line
}
