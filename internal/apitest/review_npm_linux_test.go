package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N5: npm in a repository: of all that it changes, one file is applied, and the rest is dropped. git sees that file alone.
func TestReviewOfNpm(t *testing.T) {
	testenv.Need(t, "overlayfs", "userns", "git", "npm", "node")
	home := workspace(t)
	ws := workspace(t)
	for name, value := range map[string]string{"XDG_STATE_HOME": home + "/state", "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": "", "XDG_DATA_HOME": ""} {
		t.Setenv(name, value)
	}
	flags := npmProject(t, ws, 30)
	app := filepath.Join(ws, "app")
	run := func(want int, args ...string) string {
		t.Helper()
		return clocheIn(t, app, home, want, args...)
	}
	git := func() string {
		t.Helper()
		return shellOutside(t, app, "git status --porcelain --untracked-files=all --ignored")
	}
	shellOutside(t, app, `git init -q . && git add . && git -c user.name=n -c user.email=n@example.com commit -qm one`)

	npm := append(append([]string{"run", "--preset", "node", "--review"}, flags...), "--", "sh", "-ec")
	run(0, append(npm, "npm ci && npm test --silent")...)
	if got := git(); got != "" {
		t.Errorf("after the run git sees %s", got)
	}
	// npm ci installs what the lock says, and does not change it.
	if got := run(125, "review", "apply", "package-lock.json"); !strings.Contains(got, "there is no change at package-lock.json") {
		t.Errorf("apply: %s", got)
	}
	if got := run(0, "review"); !strings.Contains(got, app+"/node_modules/p0/index.js") || strings.Contains(got, "CONFLICT") {
		t.Errorf("the review:\n%.2000s", got)
	}
	if got := run(0, "review", "discard"); !strings.HasPrefix(got, "discarded ") {
		t.Errorf("discard: %s", got)
	}

	// One package less, which the next install takes out of the lock.
	shellOutside(t, app, `grep -v '"p5"' package.json > p && mv p package.json && git -c user.name=n -c user.email=n@example.com commit -qam two`)
	run(0, append(npm, "npm install && npm test --silent")...)
	if got := git(); got != "" {
		t.Errorf("after the run git sees %s", got)
	}
	if got := run(0, "review", "apply", "package-lock.json"); got != "applied 1 change\n" {
		t.Errorf("apply: %s", got)
	}
	if got := run(0, "review", "discard"); !strings.HasPrefix(got, "discarded ") {
		t.Errorf("discard: %s", got)
	}
	if got := git(); got != " M package-lock.json\n" {
		t.Errorf("in the end git sees %q", got)
	}
	if lock, err := os.ReadFile(filepath.Join(app, "package-lock.json")); err != nil || strings.Contains(string(lock), `"node_modules/p5"`) {
		t.Errorf("the lock is the old one: %v", err)
	}
}

// clocheIn runs the command cloche in a folder, with a home of its own, and returns what it printed.
func clocheIn(t *testing.T, dir, home string, want int, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, append([]string{clocheWord}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "HOME="+home)
	out, err := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); got != want {
		t.Fatalf("cloche %q: status %d, want %d: %v: %.2000s", args, got, want, err, out)
	}
	return string(out)
}
