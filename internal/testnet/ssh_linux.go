package testnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// SSHKey is the private key that the ssh server accepts; the user is the one
// that the tests run as.
func SSHKey() string { return filepath.Join(Dir(), "ssh", "key") }

// RepositoryPath is the git repository's path on the ssh server. Over HTTP it
// is /git/repository.
func RepositoryPath() string { return filepath.Join(Dir(), "git", "repository") }

const sshdConfig = `ListenAddress 0.0.0.0:%[2]d
ListenAddress [::]:%[2]d
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
`

// startSSH starts sshd, where there is one. As an ordinary user it runs in a
// user namespace in which it is that user: as root of a namespace with one id
// it would try to become others.
func (s *servers) startSSH() error {
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		return nil
	}
	dir := filepath.Join(s.dir, "ssh")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"host", "key"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	config, err := writeFile(dir, "config", fmt.Sprintf(sshdConfig, dir, PortSSH), 0o600)
	if err != nil {
		return err
	}
	c := exec.Command(sshd, "-D", "-e", "-f", config)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.asUser(c); err != nil {
		return err
	}
	return s.serve(c, PortSSH)
}

// asUser lets a server run as the user that the tests run as.
func (s *servers) asUser(c *exec.Cmd) error {
	var id int
	if _, err := fmt.Sscan(os.Getenv(uidVariable), &id); err != nil {
		return err
	}
	if id == 0 {
		return privilegeSeparation()
	}
	c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}}
	c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}}
	return nil
}

// privilegeSeparation makes the folder that sshd wants as root, in this mount
// namespace alone.
func privilegeSeparation() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	return os.Mkdir("/run/sshd", 0o755)
}

// serve starts a program and waits until it answers at the port.
func (s *servers) serve(c *exec.Cmd, port int) error {
	output, err := os.Create(filepath.Join(s.dir, filepath.Base(c.Path)+".log"))
	if err != nil {
		return err
	}
	defer output.Close()
	c.Stderr = output
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	s.stops = append(s.stops, func() { c.Process.Kill(); <-ended })
	for range 600 {
		conn, err := net.Dial("tcp", net.JoinHostPort(NameServer, fmt.Sprint(port)))
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(output.Name())
			ended <- err
			return fmt.Errorf("%s ended: %w: %s", c.Path, err, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return errors.New(c.Path + " does not answer")
}

// startRepository makes the repository that is served by HTTP and ssh.
func (s *servers) startRepository() error {
	if _, err := exec.LookPath("git"); err != nil {
		return nil
	}
	work := filepath.Join(s.dir, "work")
	script := fmt.Sprintf(`set -e
git init -q -b main %[1]s && cd %[1]s
echo hello > file && git add file
git -c user.name=t -c user.email=t@example.com commit -q -m first
git clone -q --bare %[1]s %[2]s
git -C %[2]s config http.receivepack true`, work, RepositoryPath())
	c := exec.Command("sh", "-c", script)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME="+s.dir)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("make a repository: %w: %s", err, out)
	}
	return nil
}
