// Package testnet gives tests an internet of their own. [Main] runs the tests
// of a package on a machine with an address, a default route and a name server,
// in namespaces made for it: what the tests call "the internet" is a second
// network namespace at the other end of a cable, with public addresses, names
// and servers ([Names]). Nothing is injected into the product, and nothing
// leaves this machine.
//
// It works for root and for an ordinary user, who stays one.
package testnet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// The stages of Main: each is this program again, in namespaces of its own.
const (
	stageVariable = "CLOCHE_TESTNET_STAGE"
	folderVar     = "CLOCHE_TESTNET_DIR"
	uidVariable   = "CLOCHE_TESTNET_UID"

	stageInternet = "internet"
	stageMachine  = "machine"
	stageTests    = "tests"
)

// goFD is the descriptor on which a stage waits until its cable is plugged in.
const goFD = 3

// The addresses of the two ends of the cable.
const (
	MachineV4  = "192.168.77.2"
	MachineV6  = "fd77::2"
	internetV4 = "192.168.77.1"
	internetV6 = "fd77::1"
)

// Main runs the tests on the machine with an internet. Call it from TestMain.
// Tests call [Need] first: where the namespaces cannot be made, Main runs the
// tests as they are, and they skip or fail there.
func Main(m *testing.M) {
	switch os.Getenv(stageVariable) {
	case "":
		if missing() != nil {
			os.Exit(m.Run())
		}
		os.Exit(start())
	case stageInternet:
		os.Exit(internet())
	case stageMachine:
		os.Exit(machine(m))
	case stageTests:
		os.Exit(m.Run())
	default:
		fmt.Fprintln(os.Stderr, "testnet: unknown stage", os.Getenv(stageVariable))
		os.Exit(2)
	}
}

// Need skips the test where there is no internet of its own, or fails it where
// that is promised: it takes user namespaces and the program ip.
func Need(t testing.TB) {
	t.Helper()
	testenv.Need(t, "userns", "ip")
	if os.Getenv(stageVariable) == "" {
		t.Fatal("testnet: the package's TestMain does not call testnet.Main, or it could not make its namespaces")
	}
}

func missing() error {
	_, err := exec.LookPath("ip")
	return err
}

// Dir is a folder that the servers and the tests share: it has the authority
// that signed the servers' certificates, keys for the ssh server, and the git
// repository that they serve.
func Dir() string { return os.Getenv(folderVar) }

// start makes the shared folder and the internet, and waits for its end.
func start() int {
	dir, err := os.MkdirTemp("", "testnet")
	if err != nil {
		return failed("a folder for the servers", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv(folderVar, dir); err != nil {
		return failed("set "+folderVar, err)
	}
	uid := os.Getuid()
	os.Setenv(uidVariable, fmt.Sprint(uid))
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return run(again(stageInternet, attr))
}

// again is this program with the same arguments in another stage.
func again(stage string, attr *syscall.SysProcAttr) *exec.Cmd {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), stageVariable+"="+stage)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = attr
	return c
}

func run(c *exec.Cmd) int {
	if err := c.Run(); err != nil {
		if code := c.ProcessState.ExitCode(); code > 0 {
			return code
		}
		return failed("run the next stage", err)
	}
	return 0
}

func failed(what string, err error) int {
	fmt.Fprintf(os.Stderr, "testnet: %s: %v\n", what, err)
	return 2
}

// internet is the other end of the cable: it has the addresses and the servers.
func internet() int {
	commands := []string{"link set lo up"}
	for _, a := range addresses() {
		commands = append(commands, "addr add "+a+" dev lo nodad")
	}
	if err := ip(commands...); err != nil {
		return failed("addresses of the internet", err)
	}
	stop, err := startServers(Dir())
	if err != nil {
		return failed("servers", err)
	}
	defer stop()

	hold, release, err := os.Pipe()
	if err != nil {
		return failed("a pipe", err)
	}
	c := again(stageMachine, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL})
	c.ExtraFiles = []*os.File{hold}
	if err := c.Start(); err != nil {
		return failed("start the machine", err)
	}
	hold.Close()
	err = ip(fmt.Sprintf("link add cable0 type veth peer name eth0 netns %d", c.Process.Pid),
		"addr add "+internetV4+"/24 dev cable0", "addr add "+internetV6+"/64 dev cable0 nodad", "link set cable0 up")
	if err != nil {
		c.Process.Kill()
		c.Wait()
		return failed("plug the cable in", err)
	}
	release.Write([]byte{1})
	release.Close()
	if err := c.Wait(); err != nil && c.ProcessState.ExitCode() <= 0 {
		return failed("the machine", err)
	}
	return c.ProcessState.ExitCode()
}

// machine sets up what the tests see, and runs them: as root at once, otherwise
// in one more user namespace in which the user is the one it was.
func machine(m *testing.M) int {
	gate := os.NewFile(goFD, "gate")
	if n, err := gate.Read(make([]byte, 1)); n != 1 {
		return failed("wait for the cable", err)
	}
	gate.Close()
	if err := setUpMachine(); err != nil {
		return failed("set up the machine", err)
	}
	uid := os.Getenv(uidVariable)
	if uid == "0" {
		os.Setenv(stageVariable, stageTests)
		return m.Run()
	}
	var id int
	if _, err := fmt.Sscan(uid, &id); err != nil {
		return failed(uidVariable, err)
	}
	return run(again(stageTests, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: 0, Size: 1}}}))
}

func setUpMachine() error {
	err := ip("link set lo up", "addr add "+MachineV4+"/24 dev eth0", "addr add "+MachineV6+"/64 dev eth0 nodad", "link set eth0 up",
		"route add default via "+internetV4, "-6 route add default via "+internetV6)
	if err != nil {
		return err
	}
	// Ping sockets of this namespace alone, for whoever is in it.
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	for path, text := range map[string]string{"/etc/resolv.conf": "nameserver " + NameServer + "\n", "/etc/hosts": hosts} {
		if err := replace(path, text); err != nil {
			return err
		}
	}
	return nil
}

// replace shows a text in the place of a file, in this mount namespace.
func replace(path, text string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	file := filepath.Join(Dir(), filepath.Base(path))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	if err := syscall.Mount(file, real, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s as %s: %w", file, real, err)
	}
	return nil
}

// ip runs commands of the program ip.
func ip(commands ...string) error {
	for _, line := range commands {
		args := strings.Fields(line)
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
