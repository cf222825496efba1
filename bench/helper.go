package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cloche-dev/cloche"
)

// helperWord makes this program run one job through the library and end. So a
// program that does nothing but use the library can be looked at from outside.
const helperWord = "one-job"

// An errand is the input of the helper, as JSON.
type errand struct {
	Choice choice
	Job    job
}

func (c choice) helper(j job) (command, error) {
	self, err := os.Executable()
	if err != nil {
		return command{}, err
	}
	data, err := json.Marshal(errand{c, j})
	return command{argv: []string{self, helperWord, string(data)}, env: os.Environ(), dir: j.Workspace}, err
}

// helperMain runs the errand with this process's standard streams and returns
// the exit status.
func helperMain(args []string) int {
	if err := runErrand(strings.Join(args, " ")); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func runErrand(text string) (err error) {
	var e errand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return fmt.Errorf("the errand %q: %w", text, err)
	}
	ctx := context.Background()
	var cmd *cloche.Cmd
	if _, ok := sessionOptions[e.Choice.Mode]; ok {
		session, err := e.Choice.session(ctx, e.Job)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, session.Close()) }()
		cmd = session.Command(ctx, e.Job.Argv[0], e.Job.Argv[1:]...)
	} else {
		cmd = cloche.Command(ctx, e.Choice.policy(e.Job), e.Job.Argv[0], e.Job.Argv[1:]...)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func cutVariable(v string) (name, value string) {
	name, value, _ = strings.Cut(v, "=")
	return name, value
}
