// Command clai runs the tools of an agent that asks a person for the paths it
// needs. It reads the agent's tool calls from standard input, one JSON object on a
// line, and answers each in the same way:
//
//	{"tool": "capabilities"}
//	{"tool": "bash_exec", "command": "make test"}
//	{"tool": "fs_request_grant", "path": "~/.config/gh", "access": "read", "reason": "to open a pull request"}
//
// A person decides on the terminal, or a file stands in for the person:
//
//	clai -workspace DIR -person /dev/tty
//
// With -live a command that is refused a file waits for the decision, and goes on
// with the file if it is yes.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/policy"
)

//go:embed policy.yaml
var agentPolicy []byte

func main() {
	workspace := flag.String("workspace", ".", "the folder that the agent works on")
	data := flag.String("data", "", "where grants that are given always are kept")
	person := flag.String("person", "/dev/tty", "where decisions are read from, one on a line")
	bus := flag.Bool("session-bus", false, "let the agent talk to the user's keyring")
	live := flag.Bool("live", false, "what a command is refused waits for the person, and succeeds on yes")
	backend := flag.String("backend", "auto", "native, bwrap, landlock or auto")
	flag.Parse()
	extra := []policy.Option{policy.WithBackend(*backend)}
	if *bus {
		extra = append(extra, policy.Set("bus.talk", keyring))
	}
	set := settings{workspace: *workspace, data: *data, live: *live, extra: extra}
	if err := run(context.Background(), set, *person); err != nil {
		fmt.Fprintln(os.Stderr, "clai:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, set settings, person string) (err error) {
	if set.workspace, err = filepath.Abs(set.workspace); err != nil {
		return err
	}
	answers, err := os.Open(person)
	if err != nil {
		return fmt.Errorf("nobody can be asked: %w", err)
	}
	defer answers.Close()
	a, err := newAgent(ctx, set, answers)
	if err != nil {
		return err
	}
	defer a.close()
	return serve(ctx, a, os.Stdin, os.Stdout)
}

// A call is one use of a tool by the agent.
type call struct {
	Tool    string `json:"tool"`
	Command string `json:"command,omitempty"`
	Path    string `json:"path,omitempty"`
	Access  string `json:"access,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// An answer is what the agent hears.
type answer struct {
	Error    string   `json:"error,omitempty"`
	Text     string   `json:"text,omitempty"`
	ExitCode *int     `json:"exit_code,omitempty"`
	Stdout   string   `json:"stdout,omitempty"`
	Stderr   string   `json:"stderr,omitempty"`
	Granted  string   `json:"granted,omitempty"`
	Notices  []notice `json:"notices,omitempty"`
}

// serve answers calls until there are no more.
func serve(ctx context.Context, a *agent, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	replies := json.NewEncoder(out)
	for lines.Scan() {
		var c call
		reply := answer{}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			reply.Error = err.Error()
		} else if reply, err = a.do(ctx, c); err != nil {
			reply.Error = err.Error()
		}
		if err := replies.Encode(reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (a *agent) do(ctx context.Context, c call) (answer, error) {
	switch c.Tool {
	case "capabilities":
		return a.capabilities(ctx), nil
	case "bash_exec":
		return a.bash(ctx, c.Command)
	case "fs_request_grant":
		return a.request(ctx, c)
	}
	return answer{}, errors.New("there is no such tool; use capabilities, bash_exec or fs_request_grant")
}
