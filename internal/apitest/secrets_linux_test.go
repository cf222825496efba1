package apitest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// N14: nothing that a command can read has the value of a secret, whatever its variable is called and
// wherever its file is. Without an inspector it runs with best effort only, and the placeholder is
// what it has.
func TestSecretIsNotInside(t *testing.T) {
	testenv.AlsoAsUser(t)
	for backend, needs := range map[string]string{"native": "userns", "bwrap": "bwrap", "landlock": "landlock"} {
		t.Run(backend, func(t *testing.T) {
			testenv.Need(t, needs)
			const value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
			dir := workspace(t)
			file := filepath.Join(dir, "token")
			if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PLAIN_NAME", value+"-")
			p := policy.Workspace(dir).With(policy.WithSecret("T@a.example=env:PLAIN_NAME", "F@b.example=file:"+file, "npm"),
				policy.Set("env.policy", "inherit"), policy.WithRequire(policy.BestEffort), policy.WithBackend(backend))
			s := open(t, p, dir)
			r := capture(t, s, `env; cat token; grep -r ghp_16 . 2>/dev/null; cat "$NPM_CONFIG_USERCONFIG"; tr '\0' '\n' </proc/self/environ; true`)
			if out := string(r.Stdout) + string(r.Stderr); strings.Contains(out, value) || !strings.Contains(out, "T=") {
				t.Errorf("inside:\n%s", out)
			}
			if backend != "landlock" && !strings.Contains(string(r.Stdout), "registry.npmjs.org/:_authToken=") {
				t.Errorf("the file of npm is not shown:\n%s\n%s", r.Stdout, r.Stderr)
			}
			report, err := json.Marshal(r)
			if err != nil || strings.Contains(string(report), value) {
				t.Errorf("the result has the value: %v", err)
			}
		})
	}
}
