// Command flemma runs a tool call for a chat document, as an editor would. The
// document may override the user's policy in its front matter, and a call is made
// without a question only if a resolver approves it:
//
//	flemma -document notes.chat bash 'make test'
//	flemma -document notes.chat write out.txt 'some text'
//	flemma -document notes.chat status
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/approval"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/policy"
)

//go:embed policy.yaml
var userPolicy []byte

// tools are what the model may call. Only bash runs in the sandbox, so only for
// bash the sandbox is enough.
var tools = map[string]approval.Call{
	"bash":  {Tool: "bash", SandboxIsEnough: true},
	"write": {Tool: "write"},
}

func main() {
	document := flag.String("document", "", "the chat document; its front matter overrides the policy")
	manual := flag.Bool("no-auto-approve-sandboxed", false, "approve nothing because of the sandbox")
	flag.Parse()
	if err := run(context.Background(), *document, *manual, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "flemma:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, document string, manual bool, args []string) error {
	front, err := readFrontMatter(document)
	if err != nil {
		return err
	}
	session, err := open(ctx, document, front)
	if err != nil {
		return err
	}
	defer session.Close()
	if len(args) == 1 && args[0] == "status" {
		return status(ctx, session)
	}
	if len(args) < 2 || tools[args[0]].Tool == "" {
		return errors.New("write: bash COMMAND, write FILE TEXT, or status")
	}
	call := tools[args[0]]
	call.Arguments = args[1:]
	decision := chain(session, front.Tools, manual).Decide(ctx, call)
	fmt.Printf("%s: %s by %s (%s)\n", args[0], decision.Verdict, cmp.Or(decision.Resolver, "nobody"), decision.Reason)
	if decision.Verdict != approval.Approve {
		return fmt.Errorf("%s was not run: %s", args[0], decision.Verdict)
	}
	if args[0] == "write" {
		return write(session, args[1], args[2:])
	}
	return bash(ctx, session, args[1])
}

// open layers the document's override over the user's policy, and supplies the
// folder that urn:cloche:document stands for.
func open(ctx context.Context, document string, front *frontMatter) (*cloche.Session, error) {
	user, err := policy.Parse("policy.yaml", userPolicy)
	if err != nil {
		return nil, err
	}
	layers := []policy.Layered{{Doc: user, Layer: policy.LayerUser}}
	if front.Policy != nil {
		layers = append(layers, policy.Layered{Doc: front.Policy, Layer: policy.LayerCommand})
	}
	merged, _, err := policy.Merge(layers...)
	if err != nil {
		return nil, err
	}
	var options []cloche.Option
	if document != "" {
		folder, err := filepath.Abs(filepath.Dir(document))
		if err != nil {
			return nil, err
		}
		// The front matter is a policy file: a command that could write it would
		// decide what the next one may do.
		file := audit.PolicyFile{Path: filepath.Join(folder, filepath.Base(document)), SHA256: front.SHA256, Trusted: true}
		options = append(options, cloche.WithDocument(folder), cloche.WithPolicyFiles(file))
	}
	return cloche.Open(ctx, merged, options...)
}

// chain asks the document, then the sandbox.
func chain(session *cloche.Session, document approval.Choices, manual bool) *approval.Chain {
	return &approval.Chain{
		Document: document,
		Sandbox:  approval.Sandbox{OptedIn: !manual, ConfinedBy: session.ConfinedBy},
	}
}

func status(ctx context.Context, session *cloche.Session) error {
	name, err := session.ConfinedBy(ctx)
	if err != nil {
		fmt.Printf("sandbox: not in force: %v\n", err)
		return nil
	}
	fmt.Printf("sandbox: in force, backend %s\n", name)
	return nil
}

func bash(ctx context.Context, session *cloche.Session, script string) error {
	result, err := session.Command(ctx, "sh", "-c", script).Capture()
	if err != nil {
		return err
	}
	fmt.Printf("%s%sexit %d, confined %v\n", result.Stdout, result.Stderr, result.ExitCode, result.Confined)
	return nil
}

// write is a tool inside the editor's own process: no command runs, and the same
// policy decides.
func write(session *cloche.Session, path string, text []string) error {
	f, err := session.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	for _, line := range text {
		if _, err := fmt.Fprintln(f, line); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
