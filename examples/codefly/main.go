// Command codefly starts a plugin in a sandbox, as a host of plugins would: it
// prepares an exec.Cmd, wraps it, and drives it as before. The two talk over unix
// sockets: one of the host's, granted by its path, and one that the plugin makes in
// its work folder.
//
//	codefly -work DIR
//	codefly -work DIR -plugin ./my-plugin
//
// The plugin that it starts by default is the program itself, which tries what a
// plugin should be able to do, and what it should not.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

//go:embed policy.yaml
var pluginPolicy []byte

// pluginWord makes the program be the plugin.
const pluginWord = "plugin"

func main() {
	if len(os.Args) > 1 && os.Args[1] == pluginWord {
		exit(servePlugin(os.Args[2:]))
	}
	work := flag.String("work", ".", "the folder that the plugin may write")
	plugin := flag.String("plugin", "", "the plugin's program; by default this one")
	backend := flag.String("backend", "auto", "native, bwrap, landlock, none or auto")
	flag.Parse()
	exit(run(context.Background(), *work, *plugin, *backend))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "codefly:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, work, plugin, backend string) error {
	work, err := filepath.Abs(work)
	if err != nil {
		return err
	}
	if plugin == "" {
		if plugin, err = os.Executable(); err != nil {
			return err
		}
	}
	// The host's side: a socket that is granted, and a listener that is not.
	agent, err := net.Listen("unix", filepath.Join(work, "agent.sock"))
	if err != nil {
		return err
	}
	defer agent.Close()
	go answer(agent, "the host's agent")
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer outside.Close()
	go answer(outside, "the host's loopback")

	session, err := open(ctx, work, backend, agent.Addr().String())
	if err != nil {
		return err
	}
	defer session.Close()
	cmd := exec.CommandContext(ctx, plugin, pluginWord, work, agent.Addr().String(), outside.Addr().String())
	cmd.Dir, cmd.Stderr = work, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := session.Wrap(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	talked := talk(stdout)
	return errors.Join(talked, stdin.Close(), cmd.Wait())
}

// open makes the session of one plugin: what codefly's With methods added to a
// sandbox is added to the policy.
func open(ctx context.Context, work, backend, socket string) (*cloche.Session, error) {
	doc, err := policy.Parse("policy.yaml", pluginPolicy)
	if err != nil {
		return nil, err
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
	if err != nil {
		return nil, err
	}
	p = p.With(policy.AllowWrite(work), policy.AllowSocket(socket), policy.WithBackend(backend))
	return cloche.Open(ctx, p, cloche.WithWorkspace(work))
}

// talk reads the plugin's handshake, calls it over the socket that it names, and
// shows what else it says.
func talk(stdout io.Reader) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		network, address, ok := strings.Cut(lines.Text(), "|")
		if !ok {
			fmt.Println(lines.Text())
			continue
		}
		reply, err := call(network, address)
		if err != nil {
			return fmt.Errorf("call the plugin: %w", err)
		}
		fmt.Println("host to plugin:", reply)
		return nil
	}
	return errors.Join(errors.New("the plugin ended before its handshake"), lines.Err())
}

// answer tells everybody who connects who they have reached.
func answer(l net.Listener, who string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, who)
		c.Close()
	}
}

// call connects and returns the line it is greeted with.
func call(network, address string) (string, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}
