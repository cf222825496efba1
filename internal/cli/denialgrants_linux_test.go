package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// N1: what the user may not do outside either has no option, since none would help,
// and the record says so. Root may do it, and gets the option that works.
func TestRefusedOutsideHasNoGrant(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh")
	testenv.AlsoAsUser(t)
	for name, c := range map[string]deniedOp{
		"write":  {script: `echo x >> OUT/file`, op: plan.OpWrite, path: "OUT/file"},
		"create": {script: `echo x > OUT/dir/new`, op: plan.OpCreate, path: "OUT/dir/new"},
		"mkdir":  {script: `mkdir OUT/dir/new`, op: plan.OpMkdir, path: "OUT/dir/new"},
		"unlink": {script: `rm -f OUT/dir/kept`, op: plan.OpUnlink, path: "OUT/dir/kept"},
	} {
		for _, backend := range []string{"native", "bwrap"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				w := newDeniedWorld(t, backend)
				for _, step := range []error{
					os.WriteFile(w.out+"/dir/kept", nil, 0o600), os.Chmod(w.out+"/file", 0o400), os.Chmod(w.out+"/dir", 0o500),
				} {
					if step != nil {
						t.Fatal(step)
					}
				}
				defer os.Chmod(w.out+"/dir", 0o700)
				_, report := w.run(t, "", c.script)
				d := report.find(c.op, w.at(c.path))
				if d == nil {
					t.Fatalf("on record: %s", report.text)
				}
				if os.Getuid() != 0 {
					if !d.Outside || d.Option != "" || !strings.Contains(report.stderr, "outside the sandbox the system refuses it, too") {
						t.Errorf("the record is %+v, and said is %s", d, report.stderr)
					}
					return
				}
				if status, report := w.run(t, d.Option, c.script); d.Outside || status != 0 {
					t.Errorf("with %q: status %d\n%s", d.Option, status, report.text)
				}
			})
		}
	}
}

// N1: for a new file in a home folder, however deep that is, no option opens all of
// the home. If the file is made outside first, the option that is named is enough. A
// new folder there can be one of the sandbox's own.
func TestNothingOpensAHome(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh")
	for _, backend := range []string{"native", "bwrap"} {
		w := newDeniedWorld(t, backend)
		home := w.top + "/home"
		rules := w.at("version: 1\npaths:\n  read: [OUT, \"~\"]\n")
		if err := os.WriteFile(home+"/.config/cloche/policy.yaml", []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		file := home + "/new"
		script := "echo x > " + file
		status, report := w.run(t, "", script)
		d := report.find(plan.OpCreate, file)
		if status == 0 || d == nil || d.Option != "" || d.IfMade != "--rw "+file {
			t.Fatalf("%s: status %d, on record: %s", backend, status, report.text)
		}
		if !strings.Contains(report.stderr, "make it outside first, then --rw "+file+" allows it") {
			t.Errorf("%s: said is %s", backend, report.stderr)
		}
		if _, report = w.run(t, "", "mkdir "+home+"/folder"); report.find(plan.OpMkdir, home+"/folder").Option != "--persist "+home+"/folder" {
			t.Errorf("%s: on record: %s", backend, report.text)
		}
		if status, report := w.run(t, "--persist "+home+"/folder", "mkdir -p "+home+"/folder/x"); status != 0 {
			t.Errorf("%s, with --persist: %s", backend, report.text)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if status, report := w.run(t, d.IfMade, script); status != 0 {
			t.Errorf("%s, with %s: %s", backend, d.IfMade, report.text)
		}
	}
}

// N1: a rule that stands against an option for its own path may not stand against one for a
// file below it, and what a bind covers can be shown: the option that works is recorded. It
// opens no other file.
func TestGrantsBesideRulesThatStand(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh")
	testenv.AlsoAsUser(t)
	for name, c := range map[string]struct {
		deniedOp
		options, project, other string
	}{
		"protected by an option":         {deniedOp{`echo x >> sub/f`, plan.OpWrite, "WS/sub/f", "paths.protect", "--rw WS/sub/f"}, "--protect WS/sub", "", `echo x >> sub/g`},
		"protected by an untrusted file": {deniedOp{`echo x >> sub/f`, plan.OpWrite, "WS/sub/f", "paths.protect", "--rw WS/sub/f"}, "", "{version: 1, paths: {protect: [sub]}}", `echo x >> sub/g`},
		"a folder in what is protected":  {deniedOp{`echo x > sub/deep/new`, plan.OpCreate, "WS/sub/deep/new", "paths.protect", "--rw WS/sub/deep"}, "--protect WS/sub", "", `echo x > sub/new`},
		"hidden in a bind":               {deniedOp{`cat OUT/closed/file`, plan.OpRead, "OUT/closed/file", "paths.hide", "--ro OUT/closed/file"}, "--bind WS/sub:OUT:ro", "", `cat OUT/closed/tool`},
		"made in a bind":                 {deniedOp{`mkdir OUT/closed/new`, plan.OpMkdir, "OUT/closed/new", "paths.hide", "--rw OUT/closed"}, "--bind WS/sub:OUT:ro", "", `mkdir OUT/new`},
	} {
		for _, backend := range []string{"native", "bwrap"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				w := newDeniedWorld(t, backend)
				for _, step := range []error{
					os.MkdirAll(w.workspace+"/sub/deep", 0o700), os.WriteFile(w.workspace+"/sub/f", nil, 0o600), os.WriteFile(w.workspace+"/sub/g", nil, 0o600),
				} {
					if step != nil {
						t.Fatal(step)
					}
				}
				if c.project != "" {
					if err := os.WriteFile(w.workspace+"/.cloche.yaml", []byte(c.project), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				status, report := w.run(t, w.at(c.options), c.script)
				d := report.find(c.op, w.at(c.path))
				if status == 0 || d == nil || d.Rule != c.rule || d.Option != w.at(c.grant) {
					t.Fatalf("status %d, on record: %s", status, report.text)
				}
				with := w.at(c.options) + " " + d.Option
				if status, report := w.run(t, with, c.script); status != 0 {
					t.Errorf("with %s: status %d\n%s", d.Option, status, report.text)
				}
				if status, _ := w.run(t, with, c.other); status == 0 {
					t.Errorf("with %s the command can also %s", d.Option, c.other)
				}
			})
		}
	}
}
