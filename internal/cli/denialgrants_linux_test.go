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
