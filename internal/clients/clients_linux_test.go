package clients

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// A client is a program of the field that talks to a host by its name.
type client struct {
	name  string
	needs []string
	port  int
	// command talks to the host; want is in what it prints if that went well.
	command func(host string) []string
	want    string
	// allow is the rule that lets it, with %s for the host.
	allow string
	// inProcess: the command is a Go program of the test's own.
	inProcess bool
}

const sshOptions = "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=120 -i "

// clients has every program that must work with no variable set.
func clients() []client {
	ca, repository := testnet.AuthorityFile(), testnet.RepositoryPath()
	words := func(format string, args ...any) []string { return strings.Fields(fmt.Sprintf(format, args...)) }
	return []client{
		{name: "curl http", needs: []string{"curl"}, port: 80, allow: "%s:80", want: "GET ",
			command: func(h string) []string { return words("curl -sS --max-time 120 --fail http://%s/x", h) }},
		{name: "curl https", needs: []string{"curl"}, port: 443, allow: "%s:443", want: "GET ",
			command: func(h string) []string {
				return words("curl -sS --max-time 120 --fail --cacert %s https://%s/x", ca, h)
			}},
		{name: "git http", needs: []string{"git"}, port: 80, allow: "%s", want: "refs/heads/main",
			command: func(h string) []string { return words("git ls-remote http://%s/git/repository", h) }},
		{name: "git ssh", needs: []string{"git", "ssh", "/usr/sbin/sshd"}, port: testnet.PortSSH, allow: "%s:2222", want: "refs/heads/main",
			command: func(h string) []string {
				return []string{"sh", "-c", fmt.Sprintf("umask 077; cp %s key && GIT_SSH_COMMAND='%s key' git ls-remote ssh://%s:2222%s", testnet.SSHKey(), sshOptions, h, repository)}
			}},
		{name: "node fetch", needs: []string{"node"}, port: 80, allow: "%s:80", want: "GET ",
			command: func(h string) []string {
				return []string{"node", "-e", fmt.Sprintf("fetch('http://%s/x').then(r => r.ok ? r.text() : Promise.reject(r.status)).then(t => console.log(t), e => { console.error(e); process.exit(1) })", h)}
			}},
		{name: "python", needs: []string{"/usr/bin/python3"}, port: 443, allow: "%s:443", want: "GET ",
			command: func(h string) []string {
				return []string{"/usr/bin/python3", "-c", fmt.Sprintf("import ssl, urllib.request as u; print(u.urlopen('https://%s/x', timeout=120, context=ssl.create_default_context(cafile='%s')).read())", h, ca)}
			}},
		{name: "grpc", needs: []string{"grpc"}, port: testnet.PortGRPC, allow: "%s:50051", want: "said",
			command: func(h string) []string {
				return []string{testnet.GRPCPython, "-c", testnet.GRPCClient, h + ":50051", "said"}
			}},
		{name: "go http", inProcess: true, port: 80, allow: "%s:80", want: "GET ",
			command: func(h string) []string { return []string{"http", ca, "http://" + h + "/x"} }},
		{name: "go https", inProcess: true, port: 443, allow: "%s:443", want: "GET ",
			command: func(h string) []string { return []string{"http", ca, "https://" + h + "/x"} }},
		{name: "raw tcp", inProcess: true, port: 7, allow: "tcp://%s:7", want: "echo",
			command: func(h string) []string { return []string{"tcp4", h + ":7", "echo"} }},
		{name: "server speaks first", inProcess: true, port: testnet.PortGreeter, allow: "%s:2525", want: "220 hello",
			command: func(h string) []string { return []string{"hear", h + ":2525"} }},
		{name: "udp", inProcess: true, port: 7, allow: "udp://%s:7", want: "echo",
			command: func(h string) []string { return []string{"udp4", h + ":7", "echo"} }},
		{name: "quic", inProcess: true, port: testnet.PortQUIC, allow: "udp://%s:4433", want: "quick",
			command: func(h string) []string {
				limit := clientTime
				if h != "good.example" {
					limit = 2 * time.Second // nothing answers, and a client of QUIC goes on asking
				}
				return []string{"quic", ca, h + ":4433", "quick", limit.String()}
			}},
		{name: "bash", needs: []string{"bash"}, port: testnet.PortGreeter, allow: "%s:2525", want: "220 hello",
			command: func(h string) []string {
				return []string{"bash", "-c", "exec 3<>/dev/tcp/" + h + "/2525 && head -n1 <&3"}
			}},
	}
}

func (c client) run(t *testing.T, s *sandbox, host string) *outcome {
	t.Helper()
	if c.inProcess {
		return s.goProgram(t, c.command(host)...)
	}
	return s.run(t, c.command(host)...)
}

// TestClients: each program reaches a host that a rule allows, and no other,
// with no proxy variable set; both are recorded. N3, L5.
func TestClients(t *testing.T) {
	eachBackend(t, func(t *testing.T, s *sandbox) {
		for _, c := range clients() {
			t.Run(c.name, func(t *testing.T) {
				testenv.Need(t, c.needs...)
				s := s.with("--net", "user", "--allow", fmt.Sprintf(c.allow, "good.example"))
				c.reaches(t, s)
				c.isRefused(t, s)
			})
		}
	})
}

func (c client) reaches(t *testing.T, s *sandbox) {
	t.Helper()
	o := c.run(t, s, "good.example")
	if o.status != 0 || !strings.Contains(o.stdout, c.want) {
		t.Fatalf("good.example: status %d\nstdout: %s\nstderr: %s", o.status, o.stdout, o.stderr)
	}
	record := o.connected("good.example", c.port)
	if record == nil {
		t.Fatalf("good.example:%d is not on record: %+v", c.port, o.report.Result.Connections)
	}
	if record.Received == 0 || !strings.HasPrefix(record.Rule, "network.allow") {
		t.Errorf("an odd record: %+v", *record)
	}
}

func (c client) isRefused(t *testing.T, s *sandbox) {
	t.Helper()
	before := seen(t)
	o := c.run(t, s, "other.example")
	if o.status == 0 {
		t.Errorf("other.example was reached: %s", o.stdout)
	}
	if !o.refused("other.example") {
		t.Errorf("the refusal of other.example is not on record: %+v\nstderr: %s", o.report.Result.Denied, o.stderr)
	}
	if !strings.Contains(o.stderr, "other.example") || !strings.Contains(o.stderr, "--allow") {
		t.Errorf("cloche does not say what would allow it:\n%s", o.stderr)
	}
	after := seen(t)
	if slices.Contains(after.Questions[len(before.Questions):], "other.example") {
		t.Error("the refused name was asked for outside")
	}
	if n := len(after.Requests) + len(after.Accepted) - len(before.Requests) - len(before.Accepted); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
}
