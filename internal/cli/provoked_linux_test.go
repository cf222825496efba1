package cli

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// A provokedPlace is a directory with a rule about it, or about files in it of which
// the names end in a suffix. It holds "file", "tool" and "sub", with that suffix.
type provokedPlace struct {
	dir, suffix string
	// options are those of the command, policy is the user's file and project that of
	// the workspace, which is not trusted.
	options, policy, project string
}

// provokedPlaces name directories as deniedWorld does; HOME is the user's home.
var provokedPlaces = map[string]provokedPlace{
	"outside":                             {dir: "OUT/plain"},
	"hidden":                              {dir: "OUT/closed", policy: "hide: [OUT/closed]"},
	"hidden in the workspace":             {dir: "WS/closed", policy: "hide: [WS/closed]"},
	"hidden below":                        {dir: "OUT/closed/deep/er", policy: "hide: [OUT/closed]"},
	"hidden by an option":                 {dir: "OUT/closed", options: "--hide OUT/closed"},
	"hidden above":                        {dir: "OUT/closed/deep", options: "--hide OUT/closed"},
	"hidden by a pattern":                 {dir: "WS/some", suffix: ".pem", policy: `hide: ["**/*.pem"]`},
	"hidden by a pattern of an option":    {dir: "WS/some", suffix: ".pem", options: "--hide '**/*.pem'"},
	"hidden pattern outside":              {dir: "OUT/some", suffix: ".pem", policy: `hide: ["**/*.pem"]`},
	"protected":                           {dir: "WS/kept", policy: "protect: [WS/kept]"},
	"protected by an option":              {dir: "WS/kept", options: "--protect WS/kept"},
	"protected above":                     {dir: "WS/kept/deep", options: "--protect WS/kept"},
	"protected by a pattern":              {dir: "WS/some", suffix: ".lock", policy: `protect: ["**/*.lock"]`},
	"protected by a pattern of an option": {dir: "WS/some", suffix: ".lock", options: "--protect '**/*.lock'"},
	"read-only":                           {dir: "WS/some", policy: "read: [WS/some, OUT, HOME]"},
	"read-only by an option":              {dir: "WS/some", options: "--ro WS/some"},
	"read-only above":                     {dir: "WS/some/deep", options: "--ro WS/some"},
	"bound":                               {dir: "/opt/x", options: "--bind OUT/plain:/opt/x:ro"},
	"bound in the workspace":              {dir: "WS/b", options: "--bind OUT/plain:WS/b:ro"},
	"bound from a hidden one":             {dir: "/opt/x/deep", options: "--bind OUT/closed:/opt/x:ro --hide OUT/closed/deep"},
	"remapped":                            {dir: "/workspace/kept", options: "--remap /workspace", policy: "protect: [WS/kept]"},
	"remapped and hidden":                 {dir: "/workspace/closed", options: "--remap /workspace", policy: "hide: [WS/closed]"},
	"strict":                              {dir: "OUT/plain", options: "--preset strict"},
	"readonly":                            {dir: "WS/some", options: "--preset readonly"},
	"a sink":                              {dir: "WS/.vscode"},
	"a git directory":                     {dir: "WS/.git/hooks"},
	"a secret of the home":                {dir: "HOME/.ssh"},
	"a program's directory":               {dir: "HOME/.config/app"},
	"the home":                            {dir: "HOME"},
	"a project hides":                     {dir: "WS/closed", project: "{hide: [closed]}"},
	"a project protects":                  {dir: "WS/kept", project: "{protect: [kept]}"},
	"a project's pattern":                 {dir: "WS/some", suffix: ".pem", project: `{hide: ["**/*.pem"]}`},
}

// provokedFiles are what is attempted in the directory D, at names that end in S.
var provokedFiles = map[string]string{
	"read":      `cat D/fileS`,
	"write":     `echo x >> D/fileS`,
	"truncate":  `truncate -c -s 0 D/fileS && [ -e D/fileS ]`,
	"create":    `: > D/newS`,
	"mkdir":     `mkdir -p D/newS`,
	"rename":    `mv D/fileS D/movedS`,
	"move away": `mv D/fileS away`,
	"unlink":    `rm D/fileS`,
	"rmdir":     `rmdir D/subS`,
	"link":      `link D/fileS D/hardS`,
	"symlink":   `ln -s x D/newS`,
	"exec":      `D/toolS`,
}

// suggested finds the options in the lines for a person.
var suggested = regexp.MustCompile(`(?:allow it with|make it outside first, then) (.+?)(?:, which opens all|, a folder of the sandbox's own|, or write a policy|; if it is made outside| allows it$|$)`)

// madeOutside finds the file that a line says to make first.
var madeOutside = regexp.MustCompile(`make it outside first, then --rw (\S+) allows it`)

// nothingHelps is what a line says that has no option.
var nothingHelps = []string{"no option allows it", "no single option allows it", "to allow it, change ", "outside the sandbox the system refuses it, too", "do this outside of the sandbox"}

// A provokedLimit is a command that fails at a limit, with an option that raises it. Where the
// kernel answers a call with an error, nothing is printed.
type provokedLimit struct {
	options, script, raise string
	told, toldToUsers      bool
}

// The file "raised" is there once the limit is.
var provokedLimits = map[string]provokedLimit{
	"time":       {"--timeout 1s", "[ -e raised ] || sleep 60", "--timeout 10m", true, true},
	"memory":     {"--memory 8MiB", `x=$(head -c 40000000 /dev/zero | tr "\0" x); [ ${#x} = 40000000 ] && [ -e raised ] || sleep 60`, "--memory 1GiB", true, true},
	"output":     {"--max-output 1KiB", "head -c 100000 /dev/zero", "--max-output 1MiB", true, true},
	"file size":  {"--file-size 1KiB", "head -c 100000 /dev/zero > big", "--file-size 1MiB", true, true},
	"processes":  {"--pids 20", `i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; [ -e raised ] || wait`, "--pids 200", true, false},
	"open files": {"--open-files 20", openMany, "--open-files 100", false, false},
}

const openMany = `python3 -c 'files = [open("/dev/null") for _ in range(40)]'`

// N1: of more than a hundred commands that are refused something, each gets an option
// that lets the same command pass, or that there is none. Root tries one half of them, an
// ordinary user the other.
func TestProvokedDenials(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh")
	testenv.AlsoAsUser(t)
	denied := make(chan string, len(provokedPlaces)*len(provokedFiles))
	t.Run("all", func(t *testing.T) {
		n := 0
		for _, at := range slices.Sorted(maps.Keys(provokedPlaces)) {
			for _, op := range slices.Sorted(maps.Keys(provokedFiles)) {
				backend := "native"
				if n++; n%8 < 2 {
					backend = "bwrap"
				}
				if (n%2 == 0) != (os.Getuid() == 0) {
					continue
				}
				t.Run(at+"/"+op, func(t *testing.T) {
					t.Parallel()
					place := provokedPlaces[at]
					w := newProvokedWorld(t, backend, &place)
					w.provoke(t, place.options, strings.NewReplacer("D/", w.at(place.dir)+"/", "S", place.suffix).Replace(provokedFiles[op]), denied)
				})
			}
		}
	})
	if n := len(denied); n < 100 {
		t.Errorf("only %d commands were refused something", n)
	}
}

// N1: a command that fails at a limit gets the limit and the option that raises it, and
// with that option it passes.
func TestProvokedLimits(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh", "/usr/bin/python3")
	testenv.AlsoAsUser(t)
	for name, c := range provokedLimits {
		for _, backend := range []string{"native", "bwrap"} {
			t.Run(backend+"/"+name, func(t *testing.T) {
				w := newDeniedWorld(t, backend)
				status, report := w.run(t, c.options, c.script)
				flag, _, _ := strings.Cut(c.raise, " ")
				told, line := c.toldToUsers || c.told && os.Getuid() == 0, "("+c.options+"); raise it with "+flag+"\n"
				if status == 0 || told != strings.Contains(report.stderr, line) {
					t.Fatalf("status %d, want the line: %v: %s", status, told, report.stderr)
				}
				if err := os.WriteFile(w.workspace+"/raised", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if status, report := w.run(t, c.raise, c.script); status != 0 {
					t.Errorf("with %s: status %d: %s", c.raise, status, report.stderr)
				}
			})
		}
	}
}

// provokedElsewhere are refusals of other kinds: options, and a command.
var provokedElsewhere = map[string][2]string{
	"a link of a folder's name":        {"", `mkdir c && ln -s c .github`},
	"a link that is renamed":           {"", `mkdir c && ln -s c l && mv l .github`},
	"a link in a folder that is moved": {"", `mkdir c d && ln -s ../c d/hooks && mv d .github`},
	"a link by a pattern":              {"--protect '**/a/b'", `mkdir c && ln -s c a`},
	"a link to a hidden name":          {"--hide '**/a/b'", `mkdir c && ln -s c a`},
	"a link above a path":              {"--protect WS/x/y", `mkdir c && ln -s c x`},
	"a link into an exception":         {"", `mkdir -p node_modules/p && ln -s node_modules/p p`},
	"a setting of the kernel":          {"", `echo 1 > /proc/sys/vm/drop_caches`},
	"a setting of a device":            {"", `echo 1 > /sys/kernel/mm/ksm/run`},
	"a folder of the home":             {"--persist HOME/.tool", `mkdir -p HOME/.other`},
}

// provokedCalls are refused by the filter of system calls. The program says EPERM or
// another error of its own, and what is printed names the call.
var provokedCalls = map[string]struct{ script, call, asked, instead string }{
	"user namespace": {`unshare -U true`, "unshare", "new user namespace", "switch that off"},
	"namespaces":     {`unshare -Unp true`, "unshare", "new user, pid and network namespaces", "switch that off"},
	"a sandbox":      {`bwrap --unshare-user --ro-bind / / true`, "clone", "new user and mount namespaces", "run it without bubblewrap"},
	"an agent's":     {`bash -c 'exec -a codex bash -c "bwrap --unshare-user --ro-bind / / true; exit 1"'`, "clone", "new user and mount namespaces", "cloche agent run codex"},
	"a browser's":    {`bash -c 'exec -a /usr/lib/chromium/chromium unshare -U true'`, "unshare", "new user namespace", "start it with --no-sandbox"},
	"root folder":    {`python3 -c 'import os; os.chroot("/")'`, "chroot", "", ""},
	"device node":    {`mknod null c 1 3`, "mknodat", "", ""},
	"mount":          {`python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).mount(b"x", b"/tmp", b"tmpfs", 0, None))'`, "mount", "", ""},
}

// N1: refusals that are about more than the rules of a path are printed in the same way:
// links past a rule, the kernel's own files, and calls that the filter denies.
func TestProvokedElsewhere(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh", "bash", "/usr/bin/python3")
	testenv.AlsoAsUser(t)
	for _, backend := range []string{"native", "bwrap"} {
		denied := make(chan string, len(provokedElsewhere))
		for name, c := range provokedElsewhere {
			t.Run(backend+"/"+name, func(t *testing.T) {
				w := newProvokedWorld(t, backend, &provokedPlace{})
				script := c[1]
				if os.Getuid() != 0 && strings.Contains(script, "/proc/sys") {
					script = "mkdir /x" // the modes of the files there already refuse it to a user
				}
				w.provoke(t, c[0], script, denied)
			})
		}
		if n := len(denied); n != len(provokedElsewhere) {
			t.Errorf("%s: %d of %d were refused", backend, n, len(provokedElsewhere))
		}
		for name, c := range provokedCalls {
			t.Run(backend+"/"+name, func(t *testing.T) {
				w := newDeniedWorld(t, backend)
				status, report := w.run(t, "", c.script)
				line := "cloche: denied call " + c.call + " by "
				if c.asked != "" {
					line = "cloche: denied call " + c.call + " (" + c.asked + ") by "
				}
				if status == 0 || !strings.Contains(report.stderr, line) || !strings.Contains(report.stderr, "; no option allows it") || !strings.Contains(report.stderr, c.instead) {
					t.Errorf("status %d, want %q and %q: %s", status, line, c.instead, report.stderr)
				}
				d := report.find(plan.OpCall, c.call)
				if d == nil || d.Option != "" || d.Rule != judge.RuleCalls || d.Program == "" || d.Subject != c.asked || !strings.Contains(d.Instead, c.instead) {
					t.Errorf("on record: %+v", d)
				}
			})
		}
	}
}

// unreported are commands that are refused something of which nothing is said, by a part
// of the row of docs/denials.md that says so.
var unreported = map[string]struct{ backend, options, script string }{
	"listing a hidden folder":                            {"native", "", `ls -l OUT/closed/file`},
	"`stat` and `access`":                                {"native", "", `[ -e OUT/closed/file ]`},
	"changes of modes":                                   {"native", "", `chmod 700 OUT/file`},
	"calls that the filter denies, except":               {"native", "", `python3 -c 'import socket; socket.socket(40, 1)'`},
	"`--open-files`":                                     {"native", "--open-files 20", openMany},
	"`--file-size` for a program that ignores `SIGXFSZ`": {"native", "--file-size 1KiB", `trap "" XFSZ; head -c 100000 /dev/zero > big`},
	"processes that are not its own":                     {"native", "", `kill -0 999999`},
	"On `landlock`":                                      {"landlock", "", `: > OUT/new`},
}

// N1: what is said to print no line prints none, so that the table is true.
func TestUnreportedIsDocumented(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "landlock", "sh", "/usr/bin/python3")
	page, err := os.ReadFile("../../docs/denials.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, c := range unreported {
		t.Run(row, func(t *testing.T) {
			if !strings.Contains(string(page), row) {
				t.Error("the page does not have it")
			}
			w := newDeniedWorld(t, c.backend)
			status, report := w.run(t, c.options, c.script)
			if status == 0 || strings.Contains(report.stderr, "cloche: denied") {
				t.Errorf("status %d: %s", status, report.stderr)
			}
		})
	}
}

func newProvokedWorld(t *testing.T, backend string, p *provokedPlace) *deniedWorld {
	t.Helper()
	w := newDeniedWorld(t, backend)
	rules := "  " + p.policy + "\n"
	if !strings.HasPrefix(p.policy, "read: ") {
		rules += "  read: [OUT, HOME]\n" // the test's directories may lie in /tmp
	}
	put := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put(w.top+"/home/.config/cloche/policy.yaml", w.at("version: 1\npaths:\n"+rules), 0o600)
	if p.project != "" {
		put(w.workspace+"/.cloche.yaml", "version: 1\npaths: "+p.project+"\n", 0o600)
	}
	put(w.workspace+"/.git/HEAD", "ref: refs/heads/main\n", 0o600)
	for _, dir := range []string{".git/objects", ".git/refs"} {
		if err := os.MkdirAll(w.workspace+"/"+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{
		"OUT/plain", "OUT/closed", "OUT/closed/deep", "OUT/closed/deep/er", "OUT/some", "WS/closed", "WS/some", "WS/some/deep", "WS/kept", "WS/kept/deep", "WS/p/kept",
		"WS/b", "WS/.vscode", "WS/.git/hooks", "HOME/.ssh", "HOME/.config/app", "HOME",
	} {
		dir = w.at(dir)
		put(dir+"/file"+p.suffix, "text\n", 0o600)
		put(dir+"/tool"+p.suffix, "#!/bin/sh\nexit 0\n", 0o700)
		if err := os.MkdirAll(dir+"/sub"+p.suffix, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// provoke runs a command, and if it fails with the options that were printed.
func (w *deniedWorld) provoke(t *testing.T, options, script string, denied chan<- string) {
	t.Helper()
	options = w.at(options)
	status, report := w.run(t, options, script)
	if status == 0 {
		return
	}
	denied <- script
	var more []string
	explained := false
	if m := madeOutside.FindStringSubmatch(report.stderr); m != nil {
		if err := os.WriteFile(m[1], nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(report.stderr) {
		line, ours := strings.CutPrefix(strings.TrimSpace(line), "cloche: ")
		if !ours {
			continue
		}
		if m := suggested.FindStringSubmatch(line); m != nil && !slices.Contains(more, m[1]) {
			more = append(more, m[1])
		}
		explained = explained || slices.ContainsFunc(nothingHelps, func(s string) bool { return strings.Contains(line, s) })
	}
	switch {
	case len(more) > 0 && !explained: // one line that says so is enough for a call about two names
		all := strings.Join(more, " ")
		if status, after := w.run(t, options+" "+all, script); status != 0 {
			t.Errorf("%s\n%s\nwith %s: status %d\n%s", script, report.stderr, all, status, after.stderr)
		}
	case len(more) == 0 && !explained:
		t.Errorf("%s: no line has an option, or says that there is none\n%s", script, report.stderr)
	}
}
