package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/cloche-dev/cloche/internal/wellknown"
)

// A peerNetwork is a running pasta or slirp4netns.
type peerNetwork struct{ cmd *exec.Cmd }

// startPeer attaches pasta or slirp4netns to the namespace, with the host's loopback
// closed and no ports forwarded. It returns when the interface is up.
func (p *place) startPeer(name string) (io.Closer, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	pid := strconv.Itoa(p.holder.Process.Pid)
	cmd := exec.Command(name, pastaArgs(pid)...)
	if name == slirpName {
		cmd = exec.Command(name, "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp", "--ready-fd=3",
			"--userns-path=/proc/"+pid+"/ns/user", pid, wellknown.Interface)
	}
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if name == pastaName {
		cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = nil, w, w // its number comes with its messages
	}
	runtime.LockOSThread() // the death signal is the thread's
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	n := &peerNetwork{cmd}
	if !isReady(r, name, cmd.Process.Pid, &said) {
		return nil, errors.Join(n.Close(), fmt.Errorf("%s ended: %s", name, said.String()))
	}
	return n, nil
}

func pastaArgs(pid string) []string {
	args := []string{
		"--foreground", "--quiet", "--config-net", "--no-map-gw", "--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none",
		"--no-dhcp", "--no-dhcpv6", "--no-ra", "--ns-ifname", wellknown.Interface,
		"--address", "198.18.0.100", "--netmask", "24", "--gateway", "198.18.0.2", // by itself it takes the host's address, which then leads nowhere
		"--pid", "/proc/self/fd/2",
	}
	if os.Getuid() == 0 {
		args = append(args, "--runas", "0") // as another user it could not join the namespace
	}
	return append(args, pid)
}

// isReady waits for what the program writes when the interface is up: a byte, or, in
// the case of pasta, its number in a line.
func isReady(r io.Reader, name string, pid int, said *strings.Builder) bool {
	if name == slirpName {
		n, _ := r.Read(make([]byte, 1))
		return n == 1
	}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if lines.Text() == strconv.Itoa(pid) {
			return true
		}
		said.WriteString(lines.Text() + " ")
	}
	return false
}

// Close ends the program.
func (n *peerNetwork) Close() error {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	return nil
}
