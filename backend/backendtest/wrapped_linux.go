package backendtest

import (
	"bytes"
	"errors"
	"os/exec"

	"github.com/cloche-dev/cloche"
)

// capture runs a command to its end. If the suite tests wrapped commands, it runs it as
// an exec.Cmd of the caller.
func (b *box) capture(cmd *cloche.Cmd) (*cloche.Result, error) {
	if !b.c.options.Wrapped {
		return cmd.Capture()
	}
	var stdout, stderr bytes.Buffer
	own := &exec.Cmd{
		Path: cmd.Args[0], Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, ExtraFiles: cmd.ExtraFiles,
		Stdin: cmd.Stdin, Stdout: &stdout, Stderr: &stderr,
	}
	if own.Dir == "" {
		own.Dir = b.workspace
	}
	if err := b.session.Wrap(own); err != nil {
		return nil, err
	}
	err := own.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return &cloche.Result{ExitCode: own.ProcessState.ExitCode(), Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}, nil
}
