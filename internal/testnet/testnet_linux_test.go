package testnet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

func TestMain(m *testing.M) { Main(m) }

func get(t *testing.T, url string, pool *x509.CertPool) string {
	t.Helper()
	client := &http.Client{Timeout: testenv.Patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func authority(t *testing.T) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(AuthorityFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("no certificate in " + AuthorityFile())
	}
	return pool
}

func TestWebAndNames(t *testing.T) {
	Need(t)
	if got := get(t, "http://good.example/x", nil); got != "GET good.example/x 0 bytes\n" {
		t.Errorf("plain: %q", got)
	}
	if got := get(t, "https://six.example/y", authority(t)); got != "GET six.example/y 0 bytes\n" {
		t.Errorf("TLS, v6: %q", got)
	}
	seen, err := Seen()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(seen.Questions, "six.example") || !slices.Contains(seen.Requests, "GET good.example/x") {
		t.Errorf("not in the log: %+v", seen)
	}
}

func TestEveryServerAnswers(t *testing.T) {
	Need(t)
	for _, network := range []string{"tcp4", "tcp6", "udp4", "udp6"} {
		c, err := net.Dial(network, "good.example:7")
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(testenv.Patience))
		io.WriteString(c, "echo")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "echo" {
			t.Errorf("%s: %q, %v", network, buf, err)
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	if got, err := SayQUIC(ctx, "good.example:4433", "good.example", "quick", &tls.Config{RootCAs: authority(t)}); err != nil || got != "quick" {
		t.Errorf("QUIC: %q, %v", got, err)
	}
}

func TestGitByHTTPAndSSH(t *testing.T) {
	Need(t)
	testenv.Need(t, "git", "ssh", "/usr/sbin/sshd")
	out := t.TempDir()
	if text, err := exec.Command("git", "clone", "-q", "http://good.example/git/repository", out+"/a").CombinedOutput(); err != nil {
		t.Errorf("http: %v: %s", err, text)
	}
	c := exec.Command("git", "clone", "-q", "ssh://good.example:2222"+RepositoryPath(), out+"/b")
	c.Env = append(os.Environ(), "GIT_SSH_COMMAND=ssh -F none -i "+SSHKey()+" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null")
	if text, err := c.CombinedOutput(); err != nil {
		t.Errorf("ssh: %v: %s", err, text)
	}
}

func TestGRPC(t *testing.T) {
	Need(t)
	testenv.Need(t, "grpc")
	out, err := exec.Command(GRPCPython, "-c", GRPCClient, "good.example:50051", "said").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "said" {
		t.Errorf("%v: %s", err, out)
	}
}
