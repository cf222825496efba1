package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// A deniedOp is an attempt that is refused, in a world of two folders beside each
// other: the workspace, in which the script starts, and OUT, which holds "file",
// "dir" and "closed/file". The user's policy shows OUT and hides OUT/closed.
type deniedOp struct {
	script string
	op     plan.Op
	// path is the file on record: "OUT/…" or "WS/…".
	path string
	rule string
	// grant is the option on record.
	grant string
}

var deniedOps = map[string]deniedOp{
	"write":       {`echo x >> OUT/file`, plan.OpWrite, "OUT/file", "paths.read", "--rw OUT/file"},
	"truncate":    {`truncate -s 0 OUT/file`, plan.OpWrite, "OUT/file", "paths.read", "--rw OUT/file"},
	"create":      {`echo x > OUT/new`, plan.OpCreate, "OUT/new", "paths.read", "--rw OUT"},
	"mkdir":       {`mkdir OUT/new`, plan.OpMkdir, "OUT/new", "paths.read", "--rw OUT"},
	"fifo":        {`mkfifo OUT/new`, plan.OpCreate, "OUT/new", "paths.read", "--rw OUT"},
	"rename":      {`mv OUT/file OUT/new`, plan.OpRename, "OUT/file", "paths.read", "--rw OUT"},
	"rename away": {`mv OUT/file moved`, plan.OpRename, "OUT/file", "paths.read", "--rw OUT"},
	"link":        {`ln OUT/file OUT/new`, plan.OpLink, "OUT/file", "paths.read", "--rw OUT"},
	"symlink":     {`ln -s file OUT/new`, plan.OpSymlink, "OUT/new", "paths.read", "--rw OUT"},
	"unlink":      {`rm OUT/file`, plan.OpUnlink, "OUT/file", "paths.read", "--rw OUT"},
	"rmdir":       {`rmdir OUT/dir`, plan.OpUnlink, "OUT/dir", "paths.read", "--rw OUT"},
	"read":        {`cat OUT/closed/file`, plan.OpRead, "OUT/closed/file", "paths.hide", "--ro OUT/closed/file"},
	"read a file": {`cat OUT/secret`, plan.OpRead, "OUT/secret", "paths.hide", "--ro OUT/secret"},
	// Where a link leads is found out while the process goes on; this one stays to be named.
	"read by a link":   {`true < OUT/link/file; s=$?; sleep 0.5; exit $s`, plan.OpRead, "OUT/closed/file", "paths.hide", "--ro OUT/closed/file"},
	"read relative":    {`cd OUT; cat closed/file`, plan.OpRead, "OUT/closed/file", "paths.hide", "--ro OUT/closed/file"},
	"hidden write":     {`echo x >> OUT/closed/file`, plan.OpCreate, "OUT/closed/file", "paths.hide", "--rw OUT/closed"},
	"hidden truncate":  {`python3 -c 'import os; os.truncate("OUT/closed/file", 0)'`, plan.OpWrite, "OUT/closed/file", "paths.hide", "--rw OUT/closed/file"},
	"hidden mkdir":     {`mkdir OUT/closed/new`, plan.OpMkdir, "OUT/closed/new", "paths.hide", "--rw OUT/closed"},
	"hidden unlink":    {`python3 -c 'import os; os.unlink("OUT/closed/file")'`, plan.OpUnlink, "OUT/closed/file", "paths.hide", "--rw OUT/closed"},
	"hidden rename":    {`python3 -c 'import os; os.rename("OUT/closed/file", "OUT/closed/new")'`, plan.OpRename, "OUT/closed/file", "paths.hide", "--rw OUT/closed"},
	"hidden symlink":   {`ln -s x OUT/closed/new`, plan.OpSymlink, "OUT/closed/new", "paths.hide", "--rw OUT/closed"},
	"exec":             {`OUT/closed/tool`, plan.OpExec, "OUT/closed/tool", "paths.hide", "--ro OUT/closed/tool"},
	"exec relative":    {`cd OUT; exec closed/tool`, plan.OpExec, "OUT/closed/tool", "paths.hide", "--ro OUT/closed/tool"},
	"protected create": {`echo x > .envrc`, plan.OpCreate, "WS/.envrc", "paths.protect", "--rw '?WS/.envrc'"},
	"protected mkdir":  {`mkdir .vscode`, plan.OpMkdir, "WS/.vscode", "paths.protect", "--rw '?WS/.vscode'"},
	"protected rename": {`echo x > a; mv a .envrc`, plan.OpRename, "WS/.envrc", "paths.protect", "--rw '?WS/.envrc'"},
}

// TestEachDenialHasItsGrant: every denial is recorded with who, what and why,
// and the option on record, as it is typed, lets the same command pass. N1
func TestEachDenialHasItsGrant(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh", "python3")
	testenv.AlsoAsUser(t)
	for name, c := range deniedOps {
		for _, backend := range []string{"native", "bwrap"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				w := newDeniedWorld(t, backend)
				status, report := w.run(t, "", c.script)
				d := report.find(c.op, w.at(c.path))
				if status == 0 || d == nil {
					t.Fatalf("status %d, on record: %s", status, report.text)
				}
				if d.Rule != c.rule || d.Origin.String() == "" || d.Pid == 0 || d.Program == "" || len(d.Argv) == 0 || d.Count != 1 || d.Time.IsZero() {
					t.Errorf("the record says %+v", d)
				}
				if d.Option != w.at(c.grant) {
					t.Errorf("the option is %q, want %q", d.Option, w.at(c.grant))
				}
				if status, report := w.run(t, d.Option, c.script); status != 0 {
					t.Errorf("with %s: status %d\n%s", d.Option, status, report.text)
				}
			})
		}
	}
}

// A deniedWorld is where one attempt is made.
type deniedWorld struct {
	backend, top, workspace, out string
}

func newDeniedWorld(t *testing.T, backend string) *deniedWorld {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &deniedWorld{backend: backend, top: top, workspace: filepath.Join(top, "ws"), out: filepath.Join(top, "out")}
	for _, dir := range []string{w.workspace, w.out + "/dir", w.out + "/closed", top + "/home/.config/cloche"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"/out/file": "text\n", "/out/closed/file": "text\n", "/out/secret": "text\n",
		"/home/.config/cloche/policy.yaml": w.at("version: 1\npaths:\n  read: [OUT]\n  hide: [OUT/closed, OUT/secret]\n"),
	} {
		if err := os.WriteFile(top+file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(w.out+"/closed/tool", []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("closed", w.out+"/link"); err != nil {
		t.Fatal(err)
	}
	return w
}

// at writes the folders' names out.
func (w *deniedWorld) at(s string) string {
	return strings.NewReplacer("OUT", w.out, "WS", w.workspace, "HOME", w.top+"/home").Replace(s)
}

// A deniedReport is what is read of a run's report.
type deniedReport struct {
	Result struct {
		Denied     []deniedRecord `json:"denied"`
		DeniedMore int            `json:"denied_more"`
	} `json:"result"`
	text, stderr string
}

// A deniedRecord is a refusal with its option, as the report has both.
type deniedRecord struct {
	plan.Denial
	Option  string `json:"grant"`
	IfMade  string `json:"grant_if_made_outside"`
	Instead string `json:"instead"`
}

func (r *deniedReport) find(op plan.Op, path string) *deniedRecord {
	i := slices.IndexFunc(r.Result.Denied, func(d deniedRecord) bool { return d.Op == op && d.Path == path })
	if i < 0 {
		return nil
	}
	return &r.Result.Denied[i]
}

// run runs a script with options as a shell reads them.
func (w *deniedWorld) run(t *testing.T, options, script string) (status int, report *deniedReport) {
	t.Helper()
	file := filepath.Join(w.top, "report")
	line := `exec cloche run --backend "$1" --report "$2" ` + options + ` -- sh -c "$3"`
	cmd := exec.Command("sh", "-c", line, "sh", w.backend, file, w.at(script))
	cmd.Dir = w.workspace
	home := w.top + "/home"
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home+"/.config", "XDG_DATA_HOME="+home+"/.local/share",
		"XDG_STATE_HOME="+home+"/.local/state", "XDG_CACHE_HOME="+home+"/.cache", "GORACE=atexit_sleep_ms=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	text, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatalf("%v: %v\n%s", readErr, err, &stderr)
	}
	report = &deniedReport{text: string(text) + stderr.String(), stderr: stderr.String()}
	if err := json.Unmarshal(text, report); err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), report
}

// N1: a command that is refused more than is listed leaves the exact number: in
// the report, on standard error and in the log.
func TestDenialsOverTheLimitAreCounted(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "sh")
	w := newDeniedWorld(t, "native")
	_, report := w.run(t, "", `i=0; while [ $i -lt 1100 ]; do true > OUT/$i; true > OUT/0; i=$((i+1)); done 2>/dev/null; exit 1`)
	if n, more := len(report.Result.Denied), report.Result.DeniedMore; n != 1000 || more != 100 {
		t.Errorf("%d are listed, and %d more", n, more)
	}
	if d := report.find(plan.OpCreate, w.out+"/0"); d == nil || d.Count != 1101 {
		t.Errorf("the first is %+v", d)
	}
	if !strings.Contains(report.stderr, "denied create 1000 files in "+w.out) || !strings.Contains(report.stderr, "and 100 more refusals; ") {
		t.Errorf("standard error: %s", report.stderr)
	}
	files, _ := filepath.Glob(w.top + "/home/.local/state/cloche/audit/*.jsonl")
	var log []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, text...)
	}
	if want := `"denied_more":1000`; !bytes.Contains(log, []byte(want)) {
		t.Errorf("the log %v has no %s", files, want)
	}
}

// N1: the lines for an agent say what it can do about a refusal.
func TestDenialsForAnAgent(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "sh")
	w := newDeniedWorld(t, "native")
	_, report := w.run(t, "--for-agent", `: > OUT/new`)
	for _, want := range []string{"The sandbox refused:", "create " + w.out + "/new by sh; rule: not in the writable paths: paths.read ", "; option: --rw " + w.out, "ask the person"} {
		if !strings.Contains(report.stderr, want) {
			t.Errorf("%q is not in %s", want, report.stderr)
		}
	}
}
