package seatbelt

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
)

// Probe makes a sandbox in the same way as for commands, and lets a command inside try to
// write where the profile denies it. It ends with ctx and leaves nothing behind.
func Probe(ctx context.Context, _ *host.Snapshot) host.Probe {
	if _, err := os.Stat(launcher); errors.Is(err, fs.ErrNotExist) {
		return host.Probe{Outcome: host.No, Cause: cause.Missing, Reason: launcher + " is not there, which macOS comes with"}
	}
	dir, err := os.MkdirTemp("", "cloche-probe-")
	if err != nil {
		return host.Probe{Reason: err.Error()}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t, err := try(ctx, dir)
	switch {
	case ctx.Err() != nil:
		return host.Probe{Reason: "the probe took too long"}
	case err != nil:
		return host.Probe{Reason: err.Error()}
	}
	return classify(t)
}

// try runs one trial in a folder.
func try(ctx context.Context, dir string) (t trial, err error) {
	profile, _, err := Profile(trialPlan())
	if err != nil {
		return t, err
	}
	file := filepath.Join(dir, "written")
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, launcher, "-D", tmpParam+"="+filepath.Join(dir, "tmp"), "-p", profile, shell, "-p", "-c", `printf inside; : > "$0"`, file)
	c.Env, c.Dir, c.Stdout, c.Stderr = []string{}, "/", &stdout, &stderr
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		return t, err
	}
	_, missing := os.Lstat(file)
	return trial{code: c.ProcessState.ExitCode(), detail: stderr.String(), inside: stdout.String() == "inside", wrote: missing == nil}, nil
}
