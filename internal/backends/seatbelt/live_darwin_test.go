package seatbelt

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// C5: this Mac makes sandboxes.
func TestProbe(t *testing.T) {
	if p := Probe(t.Context(), &host.Snapshot{}); p.Outcome != host.Yes {
		t.Fatalf("%+v", p)
	}
}

// C5 W5: a real profile holds a real command to its plan.
func TestLive(t *testing.T) {
	ws, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"secret": "hidden", "kept": "as it was"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &plan.Plan{
		Paths: []plan.Path{
			{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
			{Path: ws, Source: ws, Kind: hostfs.Dir, Access: policy.Write},
			{Path: ws + "/secret", Kind: hostfs.File, Content: plan.Empty},
			{Path: ws + "/kept", Source: ws + "/kept", Kind: hostfs.File, Access: policy.Read, Protect: true},
		},
		Globs: []plan.Glob{{Pattern: "**/.envrc", Access: policy.Read}},
	}
	for script, want := range map[string]bool{
		"echo x > new": true, "cat kept": true, "cat secret": false, "cat SECRET": false, "echo x > kept": false, "rm kept": false, "mv kept moved": false,
		"echo x > .envrc": false, "echo x > .ENVRC": false, "ln secret link": false, "echo x > /private/tmp/cloche-live-test": false, "kill -0 1": false,
		"mkdir d && mv d e && rmdir e": true, "exec 3<>/dev/tcp/127.0.0.1/22": false,
	} {
		if err := runLive(t, p, ws, script); (err == nil) != want {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// runLive runs a line of shell under the profile of a plan.
func runLive(t *testing.T, p *plan.Plan, dir, script string) error {
	t.Helper()
	profile, _, err := Profile(p)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	c := exec.Command(launcher, "-D", tmpParam+"="+filepath.Join(dir, "tmp"), "-p", profile, shell, "-p", "-c", script)
	c.Dir, c.Stderr = dir, &stderr
	err = c.Run()
	if strings.Contains(stderr.String(), "sandbox-exec:") {
		t.Fatalf("%s: %s", script, stderr.String())
	}
	return err
}
