package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The versions that are installed where the machine has none of its own: two
// runs on one machine compare the same programs.
const (
	srtPackage    = "@anthropic-ai/sandbox-runtime"
	srtVersion    = "0.0.83"
	landrunModule = "github.com/zouuup/landrun/cmd/landrun"
	landrunTag    = "v0.1.17"
)

// installTime bounds the installation of one peer.
const installTime = 3 * time.Minute

// A peer is another sandbox that is there.
type peer struct {
	path, version string
}

// A source is a way to get a peer.
type source struct {
	name string
	// find returns where it is in the folder of installed peers, or in PATH.
	find func(dir string) (string, error)
	// install gets it, into the folder or by the system's package manager.
	install func(ctx context.Context, dir string) error
	version func(ctx context.Context, path string) string
}

func sources() []source {
	flag := func(ctx context.Context, path string) string { return versionLine(ctx, path, "--version") }
	return []source{
		{"bwrap", inPath("bwrap"), debianPackages("bubblewrap"), flag},
		{"firejail", inPath("firejail"), debianPackages("firejail"), flag},
		{"srt", findSrt, installSrt, srtVersionOf},
		{pastaName, inPath("pasta"), debianPackages("passt"), flag},
		{slirpName, inPath("slirp4netns"), debianPackages("slirp4netns"), flag},
		{"socat", inPath("socat"), debianPackages("socat"), socatVersion},
		{"landrun", inPathOr("landrun"), installLandrun, flag},
	}
}

// findPeers finds the peers, installs those that are missing, and says which
// is not available.
func (l *lab) findPeers(ctx context.Context) {
	dir, err := peersFolder(ctx)
	if err != nil {
		l.skip("peers that are installed for the measurement", err)
	}
	for _, s := range sources() {
		path, err := s.find(dir)
		if err != nil && l.install && ctx.Err() == nil {
			l.say("installing %s", s.name)
			if err = s.installAndWait(ctx, dir); err == nil {
				path, err = s.find(dir)
			}
		}
		if err != nil {
			l.skip(s.name, fmt.Errorf("not reachable: %w", err))
			continue
		}
		l.peers[s.name] = peer{path: path, version: s.version(ctx, path)}
	}
}

func (s source) installAndWait(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	return s.install(ctx, dir)
}

// peersFolder is where peers are kept from run to run: beside Go's build cache,
// which people know how to empty.
func peersFolder(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOCACHE: %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "cloche-bench")
	return dir, os.MkdirAll(dir, 0o755)
}

func inPath(program string) func(string) (string, error) {
	return func(string) (string, error) { return exec.LookPath(program) }
}

func inPathOr(program string) func(string) (string, error) {
	return func(dir string) (string, error) {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
		return exec.LookPath(program)
	}
}

// debianPackages installs packages where apt-get is and one can become root without
// a question.
func debianPackages(names ...string) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		if _, err := exec.LookPath("apt-get"); err != nil {
			return fmt.Errorf("install %s with this system's package manager", strings.Join(names, " "))
		}
		args := append([]string{"apt-get", "install", "-y", "-q", "--no-install-recommends"}, names...)
		if os.Geteuid() != 0 {
			args = append([]string{"sudo", "-n"}, args...)
		}
		return quietly(ctx, []string{"DEBIAN_FRONTEND=noninteractive"}, args...)
	}
}

// srtNeeds are the programs that srt starts.
var srtNeeds = map[string]string{"node": "nodejs", "bwrap": "bubblewrap", "socat": "socat", "rg": "ripgrep"}

func findSrt(dir string) (string, error) {
	for program := range srtNeeds {
		if _, err := exec.LookPath(program); err != nil {
			return "", err
		}
	}
	return exec.LookPath(filepath.Join(srtFolder(dir), "node_modules", ".bin", "srt"))
}

func srtFolder(dir string) string { return filepath.Join(dir, "srt-"+srtVersion) }

func installSrt(ctx context.Context, dir string) error {
	for program, name := range srtNeeds {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if err := debianPackages(name)(ctx, dir); err != nil {
			return err
		}
	}
	// Scripts of packages would run outside of any sandbox; srt needs none.
	return quietly(ctx, nil, "npm", "install", "--prefix", srtFolder(dir), "--no-audit", "--no-fund", "--ignore-scripts", srtPackage+"@"+srtVersion)
}

func srtVersionOf(_ context.Context, path string) string {
	// The program is node_modules/.bin/srt; it does not know its own version.
	file := filepath.Join(filepath.Dir(path), "..", filepath.FromSlash(srtPackage), "package.json")
	var p struct{ Version string }
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &p) != nil {
		return "unknown version"
	}
	return p.Version
}

// socatVersion skips the name of its author, which comes first.
func socatVersion(ctx context.Context, path string) string {
	out, err := exec.CommandContext(ctx, path, "-V").Output()
	for line := range strings.Lines(string(out)) {
		if err == nil && strings.HasPrefix(line, "socat version") {
			return strings.TrimSpace(line)
		}
	}
	return "unknown version"
}

func installLandrun(ctx context.Context, dir string) error {
	return quietly(ctx, []string{"GOBIN=" + dir, "CGO_ENABLED=0"}, "go", "install", landrunModule+"@"+landrunTag)
}

// quietly runs a command and returns the end of what it said if it fails.
func quietly(ctx context.Context, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = os.TempDir()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(argv[:min(3, len(argv))], " "), err, lastLines(string(out), 2))
}

// lastLines returns the last lines of a text, as one.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(0, len(lines)-n):]
	return strings.Join(lines, " ")
}
