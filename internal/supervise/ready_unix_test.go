//go:build unix && !linux

package supervise

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
)

// passOn is a launcher that makes no sandbox: it takes its options and executes
// the rest.
const passOn = `while :; do case $1 in -D) export TOLD=$2; shift 2;; -p) shift 2;; *) exec "$@";; esac; done`

// launcherSpec is a run by a launcher whose text is given.
func launcherSpec(t *testing.T, text string, argv ...string) Spec {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sandbox-exec")
	if err := os.WriteFile(file, []byte("#!/bin/bash\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return noLimits(&backend.Launch{Backend: "seatbelt", Path: file, Argv: append([]string{file, "-p", "(version 1)"}, argv...), Env: []string{},
		Dir: "/", FirstFD: 3, Confined: true, Files: []backend.File{{Kind: builtin.Ready}}, Extras: builtin.Extras{PrivateTmp: "CLOCHE_TMP"}})
}

// F11 F12 C5: a command that says that it runs has its own status, also one that
// launchers use; its folder and its process group end with it.
func TestReady(t *testing.T) {
	var out bytes.Buffer
	s := launcherSpec(t, passOn, "/bin/bash", "-c", `printf . >&3; exec 3>&-; echo "$TMPDIR $TOLD"; : > "$TMPDIR/file"; sleep 100 & exit 71`)
	s.Stdout = &out
	p, err := Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := p.Wait(); err != nil || o.ExitCode != 71 {
		t.Errorf("outcome %+v (%v)", o, err)
	}
	dir, told, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
	if told != "CLOCHE_TMP="+dir {
		t.Errorf("TMPDIR and parameter are %q", out.String())
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left (%v)", dir, err)
	}
}

// A11 C5: a launcher that ends without a word made no sandbox, whatever its status.
func TestNotReady(t *testing.T) {
	for code, want := range map[string]string{"0": "ended before", "65": "does not read", "71": "does not apply"} {
		_, err := Start(t.Context(), launcherSpec(t, "exit "+code, "/usr/bin/true"))
		if setup, ok := errors.AsType[*SetupError](err); !ok || !strings.Contains(setup.Detail, want) {
			t.Errorf("status %s: %v", code, err)
		}
	}
}

// F12: a run is ended in time, before and after the sandbox is made.
func TestReadyOutOfTime(t *testing.T) {
	for _, text := range []string{passOn, "sleep 100"} {
		s := launcherSpec(t, text, "/bin/bash", "-c", `printf . >&3; exec 3>&-; trap "" TERM; sleep 100 & wait`)
		s.Timeout = 200 * time.Millisecond
		p, err := Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := p.Wait(); err != nil || !o.TimedOut {
			t.Errorf("%s: %+v (%v)", text, o, err)
		}
	}
}
