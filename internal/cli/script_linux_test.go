package cli

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// scripts are embedded so that the run as another user, who may not be able to
// read this folder, has them too.
//
//go:embed testdata/script/*.txtar
var scripts embed.FS

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == proberName { // an example runs verify in this process
		os.Exit(Main(os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){
		"cloche":     func() { os.Exit(Main(os.Args[1:])) },
		"nolandlock": noLandlock,
		"anagent":    anAgent,
		"cline":      anAgent,
	})
}

// TestScripts runs the stories in testdata/script, each a contract of the
// command: what is printed where, and the exit status.
func TestScripts(t *testing.T) {
	testenv.Need(t, "bwrap", "sh")
	testenv.AlsoAsUser(t)
	testscript.Run(t, testscript.Params{
		Dir:                 unpackScripts(t),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               ownHome,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"status": expectStatus},
		Condition: func(c string) (bool, error) {
			if c == "root" {
				return os.Geteuid() == 0, nil
			}
			return testenv.Have(c)
		},
	})
}

// anAgent stands for an agent: it starts a program, and stays in its folder.
func anAgent() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	} else if err != nil {
		panic(err)
	}
}

func unpackScripts(t *testing.T) string {
	t.Helper()
	files, err := fs.Glob(scripts, "testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no scripts")
	}
	dir := t.TempDir()
	for _, name := range files {
		data, err := scripts.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ownHome gives every script a home of its own, so that nothing of the real one
// is read or written.
func ownHome(e *testscript.Env) error {
	home := filepath.Join(e.WorkDir, "home")
	self, err := exec.LookPath("cloche")
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"HOME": home, "USER": "ana", "LANG": "C.UTF-8", "TERM": "xterm",
		"XDG_CONFIG_HOME": filepath.Join(home, ".config"), "XDG_DATA_HOME": filepath.Join(home, ".local/share"),
		"XDG_STATE_HOME": filepath.Join(home, ".local/state"), "XDG_CACHE_HOME": filepath.Join(home, ".cache"),
		"NO_COLOR": "", "CLOCHE": self,
		// The race detector's second of sleep at each exit is for other programs.
		"GORACE": "atexit_sleep_ms=0",
	} {
		e.Setenv(name, value)
	}
	return os.MkdirAll(home, 0o700)
}

// expectStatus is the script command "status N PROGRAM [ARG…]".
func expectStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}
