package apitest

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// shortDir makes a folder with a short name: the path of a socket has at most 108
// bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// outside runs a program without a sandbox.
func outside(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// sshAgent starts an agent with one key, whose public half it returns. The
// private half is nowhere but in the agent.
func sshAgent(t *testing.T, dir string) (socket, public string) {
	t.Helper()
	testenv.Need(t, "ssh-agent", "ssh-add", "ssh-keygen")
	socket, key := filepath.Join(dir, "agent"), filepath.Join(dir, "key")
	agent := exec.Command("ssh-agent", "-D", "-a", socket)
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it listens
		t.Fatal(err)
	}
	outside(t, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	outside(t, []string{"SSH_AUTH_SOCK=" + socket}, "ssh-add", "-q", key)
	text, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	return socket, string(text)
}

// A4 C2: the granted agent signs, at a place of its own, and nothing else of the
// folder that its socket lies in can be seen.
func TestSSHAgent(t *testing.T) {
	testenv.AlsoAsAccount(t)
	dir := shortDir(t)
	socket, public := sshAgent(t, dir)
	env := []string{"SSH_AUTH_SOCK=" + socket}
	eachWay(t, env, []policy.Option{policy.AllowSocket(policy.SSHAgent)}, func(t *testing.T, s *shell) {
		if err := os.WriteFile(filepath.Join(s.dir, "key.pub"), []byte(public), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, ok := s.run("ssh-add -L"); !ok || strings.TrimSpace(out) != strings.TrimSpace(public) {
			t.Errorf("ssh-add -L: %s", out)
		}
		if out, ok := s.run("echo text >text; ssh-keygen -q -Y sign -U -f key.pub -n cloche text"); !ok {
			t.Errorf("the agent does not sign: %s", out)
		}
		check := exec.Command("ssh-keygen", "-Y", "check-novalidate", "-n", "cloche", "-s", filepath.Join(s.dir, "text.sig"))
		check.Stdin = strings.NewReader("text\n")
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("the signature is wrong: %v: %s", err, out)
		}
		if out, ok := s.run("ls " + dir); ok {
			t.Errorf("the folder of the socket can be seen: %s", out)
		}
		for _, attack := range []string{"SSH_AUTH_SOCK=" + socket + " ssh-add -l", "rm $SSH_AUTH_SOCK", "mv $SSH_AUTH_SOCK /run/cloche/other"} {
			if out, ok := s.run(attack); ok {
				t.Errorf("%s succeeds: %s", attack, out)
			}
		}
	})
	eachWay(t, env, nil, func(t *testing.T, s *shell) {
		if out, ok := s.run("ssh-add -l; SSH_AUTH_SOCK=" + socket + " ssh-add -l"); ok {
			t.Errorf("an agent that was not granted answers: %s", out)
		}
	})
}

// A4: an agent that does not run is an error, unless it may be missing; one that
// is not a socket always is.
func TestSSHAgentMissing(t *testing.T) {
	testenv.Need(t, "userns")
	dir := workspace(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, env, grant, want string }{
		{"unset", "SSH_AUTH_SOCK=", "ssh-agent", "SSH_AUTH_SOCK is not set"},
		{"relative", "SSH_AUTH_SOCK=agent", "ssh-agent", "relative"},
		{"gone", "SSH_AUTH_SOCK=/nowhere/agent", "ssh-agent", "does not exist"},
		{"a file", "SSH_AUTH_SOCK=" + file, "?ssh-agent", "not a socket"},
		{"may be missing", "SSH_AUTH_SOCK=", "?ssh-agent", ""},
		{"may be gone", "SSH_AUTH_SOCK=/nowhere/agent", "?ssh-agent", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, policy.Workspace(dir).With(policy.AllowSocket(c.grant)), dir, cloche.WithDeferredPlan())
			cmd := s.Command(t.Context(), "true")
			cmd.Env = append(os.Environ(), c.env)
			err := cmd.Run()
			var wrong *cloche.PolicyError
			if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

// A4: gpg inside signs by the restricted socket of the agent outside, which has
// the key, and the command cannot have it exported.
func TestGPGAgent(t *testing.T) {
	testenv.AlsoAsAccount(t)
	testenv.Need(t, "gpg", "gpgconf", "gpg-connect-agent")
	home := shortDir(t)
	env := []string{"GNUPGHOME=" + home}
	t.Cleanup(func() { outside(t, env, "gpgconf", "--kill", "all") })
	outside(t, env, "gpg", "--batch", "--quiet", "--passphrase", "", "--pinentry-mode", "loopback", "--quick-gen-key", "ana@example.org", "ed25519", "sign", "never")
	public := outside(t, env, "gpg", "--armor", "--export", "ana@example.org")
	eachWay(t, env, []policy.Option{policy.AllowSocket(policy.GPGAgent)}, func(t *testing.T, s *shell) {
		if err := os.WriteFile(filepath.Join(s.dir, "public.asc"), []byte(public), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, ok := s.run("echo text >text; gpg --batch --quiet --import public.asc && gpg --batch --quiet --yes --detach-sign text"); !ok || strings.Contains(out, "unsafe") {
			t.Errorf("gpg does not sign, or warns: %s", out)
		}
		outside(t, env, "gpg", "--batch", "--verify", filepath.Join(s.dir, "text.sig"), filepath.Join(s.dir, "text"))
		if out, ok := s.run("gpg --batch --import public.asc; gpg --batch --export-secret-keys >secret; test -s secret"); ok {
			t.Errorf("the secret key was exported: %s", out)
		}
		if out, ok := s.run("ls " + home); ok {
			t.Errorf("the home of GnuPG can be seen: %s", out)
		}
		const keyinfo = "gpg-connect-agent --no-autostart 'GETINFO restricted' /bye 2>/dev/null"
		if out, _ := s.run(keyinfo); !strings.HasPrefix(strings.TrimSpace(out), "OK") {
			t.Errorf("the socket is not the restricted one: %q", out)
		}
	})
	control := exec.Command("gpg-connect-agent", "--no-autostart", "GETINFO restricted", "/bye")
	control.Env = append(os.Environ(), env...)
	if out, _ := control.CombinedOutput(); bytes.HasPrefix(bytes.TrimSpace(out), []byte("OK")) {
		t.Errorf("the usual socket is restricted, too: %s", out)
	}
}
