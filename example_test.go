package cloche_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// exampleWorkspace is a folder for the examples to work in.
func exampleWorkspace() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "cloche-example-")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// A command may write its workspace and nothing else.
func ExampleSession_Command() {
	dir, remove := exampleWorkspace()
	defer remove()
	ctx := context.Background()
	session, err := cloche.Open(ctx, policy.Workspace(dir), cloche.WithWorkspace(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	result, err := session.Command(ctx, "sh", "-c", "echo hello > greeting; cat greeting; touch /etc/x 2>/dev/null || echo refused").Capture()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s%v %v\n", result.Stdout, result.ExitCode, result.Confined)
	// Output:
	// hello
	// refused
	// 0 true
}

// Rules are added to a preset; the longest path wins.
func ExampleSession_IsWritable() {
	dir, remove := exampleWorkspace()
	defer remove()
	generated := filepath.Join(dir, "generated")
	if err := os.Mkdir(generated, 0o755); err != nil {
		log.Fatal(err)
	}
	p := policy.Workspace(dir).With(policy.ProtectPaths(generated))
	session, err := cloche.Open(context.Background(), p, cloche.WithWorkspace(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	fmt.Println(session.IsWritable(filepath.Join(dir, "main.go")))
	fmt.Println(session.IsWritable(filepath.Join(generated, "api.go")))
	fmt.Println(session.IsWritable("/etc/passwd"))
	// Output:
	// true
	// false
	// false
}

// A decision names the rule behind it and the edit of the policy that would change it.
func ExampleSession_Check() {
	dir, remove := exampleWorkspace()
	defer remove()
	session, err := cloche.Open(context.Background(), policy.Workspace(dir), cloche.WithWorkspace(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	d, err := session.Check("write", "/usr/share")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed, "by", d.Origin)
	fmt.Println("to allow it:", d.Fix)
	// Output:
	// false by built-in: reads: host
	// to allow it: [paths.write: /usr/share]
}

// A command that a program has prepared itself is wrapped in place.
func ExampleSession_Wrap() {
	dir, remove := exampleWorkspace()
	defer remove()
	session, err := cloche.Open(context.Background(), policy.Workspace(dir), cloche.WithWorkspace(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	cmd := exec.Command("sh", "-c", "cat; pwd")
	cmd.Stdin = strings.NewReader("from outside\n")
	cmd.Dir = dir
	if err := session.Wrap(cmd); err != nil {
		log.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(strings.ReplaceAll(string(out), dir, "the workspace"))
	// Output:
	// from outside
	// the workspace
}

// A file is opened by where its path really leads.
func ExampleSession_OpenFile() {
	dir, remove := exampleWorkspace()
	defer remove()
	session, err := cloche.Open(context.Background(), policy.Workspace(dir), cloche.WithWorkspace(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	f, err := session.OpenFile("notes.txt", os.O_CREATE|os.O_WRONLY, 0o644)
	fmt.Println(err)
	f.Close()

	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "innocent.txt")); err != nil {
		log.Fatal(err)
	}
	_, err = session.OpenFile("innocent.txt", os.O_WRONLY, 0)
	fmt.Println(errors.Is(err, os.ErrPermission))
	// Output:
	// <nil>
	// true
}

// A session for many commands makes its sandbox once. Each command still has
// processes and temporary folders of its own.
func ExampleWithWarm() {
	dir, remove := exampleWorkspace()
	defer remove()
	ctx := context.Background()
	session, err := cloche.Open(ctx, policy.Workspace(dir), cloche.WithWorkspace(dir), cloche.WithWarm())
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for _, script := range []string{
		"echo built > result; echo scratch > /tmp/scratch",
		"cat result; ls /tmp/scratch 2>/dev/null || echo nothing in /tmp",
	} {
		result, err := session.Command(ctx, "sh", "-c", script).Capture()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s", result.Stdout)
	}
	// Output:
	// built
	// nothing in /tmp
}
