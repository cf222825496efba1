// Command lmcli runs a tool the way lmcli does: in a workspace that appears at
// /workspace, with folders that are kept between runs. It reads lmcli's own
// configuration:
//
//	lmcli -config config.yaml -workspace DIR -- COMMAND [ARGUMENT…]
//	lmcli -workspace DIR -host-path /workspace/main.go
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

//go:embed policy.yaml
var toolPolicy []byte

func main() {
	configFile := flag.String("config", "", "lmcli's configuration, with a section sandbox")
	workspace := flag.String("workspace", ".", "the folder that the tool works on")
	hostPath := flag.String("host-path", "", "translate a path of the sandbox and run nothing")
	forward := flag.String("forward", "", "a port of this machine that the tool may reach, in networking user")
	backend := flag.String("backend", "auto", "native, bwrap, landlock, none or auto")
	flag.Parse()
	extra := []policy.Option{policy.WithBackend(*backend)}
	if *forward != "" {
		extra = append(extra, policy.Set("network.forward", *forward))
	}
	code, err := run(context.Background(), *configFile, *workspace, *hostPath, extra, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "lmcli:", err)
		code = 125
	}
	os.Exit(code)
}

func run(ctx context.Context, configFile, workspace, hostPath string, extra []policy.Option, argv []string) (int, error) {
	session, err := open(ctx, configFile, workspace, extra)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	if hostPath != "" {
		return 0, translate(session, hostPath)
	}
	if len(argv) == 0 {
		return 0, errors.New("write the tool's command after --")
	}
	cmd := session.Command(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The last adjustment before it runs, as lmcli's callers make it.
	cmd.SetEnv("LMCLI_TOOL", "1")
	err = cmd.Run()
	var exit *cloche.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode, nil
	}
	return 0, err
}

func open(ctx context.Context, configFile, workspace string, extra []policy.Option) (*cloche.Session, error) {
	workspace, err := filepath.Abs(workspace)
	if err != nil {
		return nil, err
	}
	c, err := readConfig(configFile)
	if err != nil {
		return nil, err
	}
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	doc, err := policy.Parse("policy.yaml", toolPolicy)
	if err != nil {
		return nil, err
	}
	p, _, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
	if err != nil {
		return nil, err
	}
	return cloche.Open(ctx, p.With(append(options, extra...)...), cloche.WithWorkspace(workspace))
}

// translate is lmcli's HostPath: where a path that the tool speaks of lies on the
// host.
func translate(session *cloche.Session, inside string) error {
	plan, err := session.Explain()
	if err != nil {
		return err
	}
	path, ok := plan.HostPath(inside)
	if !ok {
		return fmt.Errorf("%s is not on the host: it exists only inside", inside)
	}
	fmt.Println(path)
	return nil
}
