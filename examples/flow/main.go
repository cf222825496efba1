// Command flow runs one shell node of a workflow, which declares its capabilities,
// and keeps an audit log of it. The node is read from standard input:
//
//	{"id": "build", "command": "make", "args": ["all"],
//	 "capabilities": {"net": false, "write_paths": ["cwd"], "read_paths": [], "env": "scrubbed"}}
//
// What came of it is printed as JSON, with the layer that enforced the declaration.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/policy"
)

//go:embed policy.yaml
var nodePolicy []byte

func main() {
	workspace := flag.String("workspace", ".", "the folder that the node works on")
	log := flag.String("audit", "", "the folder of the audit log")
	result := flag.String("result", "", "a file of the workspace that the output is written to")
	flag.Parse()
	if err := run(context.Background(), *workspace, *log, *result); err != nil {
		fmt.Fprintln(os.Stderr, "flow:", err)
		os.Exit(1)
	}
}

// A report is what the workflow hears about its node.
type report struct {
	Node      string        `json:"node"`
	ExitCode  int           `json:"exit_code"`
	Output    string        `json:"output"`
	TimedOut  bool          `json:"timed_out,omitempty"`
	Truncated bool          `json:"truncated,omitempty"`
	Layer     string        `json:"layer"`
	Gaps      []backend.Gap `json:"gaps,omitempty"`
	Audited   uint64        `json:"audited"`
}

func run(ctx context.Context, workspace, log, resultFile string) error {
	n, err := readNode(os.Stdin)
	if err != nil {
		return err
	}
	if workspace, err = filepath.Abs(workspace); err != nil {
		return err
	}
	if log == "" {
		return errors.New("name the folder of the audit log with -audit")
	}
	p, err := n.policy()
	if err != nil {
		return err
	}
	if log, err = filepath.Abs(log); err != nil {
		return err
	}
	// The log is made before the first command, so that it can be hidden from it.
	if err := os.MkdirAll(log, 0o700); err != nil {
		return err
	}
	p = p.With(policy.HidePaths(log))
	result, err := execute(ctx, n, p, workspace, log, resultFile)
	if err != nil {
		return err
	}
	return tell(n, result, log)
}

// execute runs the node, with every run on record, and keeps its output if a file
// is named for it.
func execute(ctx context.Context, n *node, p policy.Policy, workspace, log, resultFile string) (result *cloche.Result, err error) {
	sink := audit.NewDir(log)
	defer func() { err = errors.Join(err, sink.Close()) }()
	session, err := cloche.Open(ctx, p, cloche.WithWorkspace(workspace), cloche.WithAudit(sink))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	cmd := session.Command(ctx, n.Command, n.Args...)
	cmd.Dir = workspace
	result, err = cmd.Capture()
	if err == nil && resultFile != "" {
		err = keep(session, resultFile, result.Stdout)
	}
	return result, err
}

// keep is flow's file adapter: what it writes is confined to the workspace, by the
// place that the path leads to.
func keep(session *cloche.Session, path string, text []byte) error {
	real, err := session.Confine(path)
	if err != nil {
		return err
	}
	f, err := session.OpenFile(real, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// tell prints the report. A log that does not verify is an error: somebody has
// changed what is recorded.
func tell(n *node, result *cloche.Result, log string) error {
	verified, err := audit.Verify(log)
	if err != nil {
		return err
	}
	if len(verified.Findings) > 0 {
		return fmt.Errorf("the audit log was changed: %v", verified.Findings[0])
	}
	return json.NewEncoder(os.Stdout).Encode(report{
		Node: n.ID, ExitCode: result.ExitCode, Output: string(result.Stdout) + string(result.Stderr), TimedOut: result.TimedOut,
		Truncated: result.Truncated, Layer: result.Backend, Gaps: result.Gaps, Audited: verified.Count,
	})
}
