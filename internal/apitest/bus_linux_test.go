package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/bus"
	"github.com/cloche-dev/cloche/internal/testbus"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/policy"
)

// ways are how a command can come into a sandbox that has mounts.
var ways = []struct {
	name, backend, need string
	opts                []cloche.Option
	wrapped             bool
}{
	{"native", "native", "userns", nil, false},
	{"warm", "native", "userns", []cloche.Option{cloche.WithWarm()}, false},
	{"warm-fast", "native", "userns", []cloche.Option{cloche.WithWarmFast()}, false},
	{"bwrap", "bwrap", "bwrap", nil, false},
	{"wrapped", "native", "userns", nil, true},
	{"wrapped-bwrap", "bwrap", "bwrap", nil, true},
}

// A shell runs scripts in one way.
type shell struct {
	t       *testing.T
	session *cloche.Session
	dir     string
	env     []string
	wrapped bool
}

// eachWay runs a test in each way, as the user that runs the test and as an
// ordinary one. The environment is that of the caller's side.
func eachWay(t *testing.T, env []string, opts []policy.Option, test func(*testing.T, *shell)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			testenv.Need(t, w.need)
			dir := workspace(t)
			// Not strict: as root, bwrap has a gap with wrapped commands.
			p := policy.Workspace(dir).With(append(opts, policy.WithBackend(w.backend), policy.WithRequire(policy.BestEffort))...)
			s := open(t, p, dir, append(w.opts, cloche.WithDeferredPlan())...)
			test(t, &shell{t, s, dir, append(os.Environ(), env...), w.wrapped})
		})
	}
}

// run runs a script and returns what it printed and whether it succeeded.
func (s *shell) run(script string) (string, bool) {
	s.t.Helper()
	if s.wrapped {
		c := exec.Command("/bin/sh", "-c", script)
		c.Env, c.Dir = s.env, s.dir
		if err := s.session.Wrap(c); err != nil {
			s.t.Fatal(err)
		}
		out, err := c.CombinedOutput()
		return string(out), err == nil
	}
	c := s.session.Command(s.t.Context(), "/bin/sh", "-c", script)
	c.Env = s.env
	r, err := c.Capture()
	if err != nil {
		s.t.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr), r.Success()
}

// send is the command line of a call to a service's object.
func send(dest, method string, args ...string) string {
	return "timeout 20 dbus-send --session --print-reply --dest=" + dest + " /org/example/Object " + method + " " + strings.Join(args, " ")
}

// A9: a name that is granted can be talked to; systemd and the keyring, which
// would give everything away, cannot, by no name and no number.
func TestBus(t *testing.T) {
	testenv.AlsoAsAccount(t)
	d := testbus.Start(t)
	good, other := d.Own(t, "org.example.Good"), d.Own(t, "org.example.Other")
	guarded := []*testbus.Service{d.Own(t, "org.freedesktop.systemd1"), d.Own(t, "org.freedesktop.secrets"), d.Own(t, "org.freedesktop.portal.Desktop")}
	rules := []policy.Option{policy.Set("bus.talk", "org.example.Good"), policy.Set("bus.see", "org.freedesktop.*"),
		policy.Set("bus.own", "org.example.Mine"), policy.Set("bus.call", "org.example.Other=org.example.Other.Allowed@/org/example/Object")}
	env := []string{"DBUS_SESSION_BUS_ADDRESS=" + d.Address, "XDG_RUNTIME_DIR=" + d.Dir}
	eachWay(t, env, rules, func(t *testing.T, s *shell) {
		if out, ok := s.run(send("org.example.Good", "org.example.Good.Hello")); !ok || !strings.Contains(out, "this is org.example.Good") {
			t.Errorf("the granted name is not reached: %s", out)
		}
		if out, ok := s.run(send("org.example.Other", "org.example.Other.Allowed")); !ok {
			t.Errorf("the granted method is not reached: %s", out)
		}
		if out, ok := s.run(send("org.freedesktop.DBus", "org.freedesktop.DBus.RequestName", "string:org.example.Mine", "uint32:4")); !ok || !strings.Contains(out, "uint32 1") {
			t.Errorf("the name cannot be owned: %s", out)
		}
		for _, attack := range busAttacks(d, append(guarded, other)) {
			if out, ok := s.run(attack); ok {
				t.Errorf("%s succeeds: %s", attack, out)
			}
		}
		if out, ok := s.run("echo $DBUS_SESSION_BUS_ADDRESS $XDG_RUNTIME_DIR; test ! -e " + d.Dir); !ok || strings.TrimSpace(out) != "unix:path="+wellknown.BusPath {
			t.Errorf("the host's bus shows: %s", out)
		}
	})
	if len(good.Calls()) == 0 {
		t.Error("the granted service was never called")
	}
	for _, g := range guarded {
		if calls := g.Calls(); len(calls) > 0 {
			t.Errorf("%s was reached: %v", g.Name, calls)
		}
	}
	if calls := other.Calls(); slices.ContainsFunc(calls, func(c string) bool { return c != "Allowed" }) {
		t.Errorf("other methods were reached: %v", calls)
	}
	leavesNoBus(t, d)
	// The same call reaches systemd where nothing filters.
	control := exec.Command("/bin/sh", "-c", send("org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager.StartTransientUnit"))
	control.Env = append(os.Environ(), env...)
	if out, err := control.CombinedOutput(); err != nil || len(guarded[0].Calls()) == 0 {
		t.Errorf("the attack fails without a sandbox, too: %v: %s", err, out)
	}
}

// busAttacks are calls that must fail.
func busAttacks(d *testbus.Daemon, services []*testbus.Service) []string {
	const bus = "org.freedesktop.DBus"
	attacks := []string{
		send(bus, bus+".UpdateActivationEnvironment", "dict:string:string:LD_PRELOAD,/x"),
		send(bus, bus+".Monitoring.BecomeMonitor", "array:string:", "uint32:0"),
		send(bus, bus+".AddMatch", `string:eavesdrop=true`),
		send(bus, bus+".AddMatch", `"string:type='method_call',eavesdrop ='t''rue'"`),
		send(bus, bus+".RequestName", "string:org.example.NotMine", "uint32:4"),
		send(bus, bus+".StartServiceByName", "string:org.freedesktop.systemd1", "uint32:0"),
		send("org.example.Other", "org.example.Other.Forbidden"),
		"DBUS_SESSION_BUS_ADDRESS=" + d.Address + " " + send("org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager.StartTransientUnit"),
		"rm /run/cloche/bus", "mv /run/cloche/bus /run/cloche/bus2", "mkdir /run/cloche/x",
	}
	for _, s := range services {
		attacks = append(attacks, send(s.Unique, s.Name+".Manager.StartTransientUnit"))
		if s.Name != "org.example.Other" {
			attacks = append(attacks, send(s.Name, s.Name+".Manager.StartTransientUnit"), send(s.Name, "org.freedesktop.DBus.Introspectable.Introspect"))
		}
	}
	return attacks
}

// leavesNoBus looks for what a proxy could leave behind, once sessions are
// closed: a process, and a folder.
func leavesNoBus(t *testing.T, d *testbus.Daemon) {
	t.Helper()
	var left []string
	if !testenv.Becomes(func() bool {
		left, _ = filepath.Glob(d.Dir + "/cloche-bus-*")
		return len(left)+len(proxiesOf(d.Dir)) == 0
	}) {
		t.Fatalf("left behind: folders %v, processes %v", left, proxiesOf(d.Dir))
	}
}

// proxiesOf are the processes of proxies with a socket in a folder.
func proxiesOf(dir string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if text, _ := os.ReadFile(f); bytes.HasPrefix(text, []byte("xdg-dbus-proxy\x00")) && bytes.Contains(text, []byte(dir)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// A9: while a command runs there is one proxy and no file of it; when the command
// ends there is neither.
func TestBusLeavesNothing(t *testing.T) {
	testenv.AlsoAsAccount(t)
	d := testbus.Start(t)
	env := []string{"DBUS_SESSION_BUS_ADDRESS=" + d.Address, "XDG_RUNTIME_DIR=" + d.Dir}
	eachWay(t, env, []policy.Option{policy.Set("bus", "true")}, func(t *testing.T, s *shell) {
		if s.wrapped {
			t.Skip("a wrapped command's caller decides when it runs: the socket stays as long as the session")
		}
		c := s.session.Command(t.Context(), "/bin/sh", "-c", "echo up; read x")
		c.Env = s.env
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		c.Stdin = in
		awaitLine(t, c, "up\n")
		if n := proxiesOf(d.Dir); len(n) != 1 {
			t.Errorf("there are %d proxies", len(n))
		}
		if left, _ := filepath.Glob(d.Dir + "/cloche-bus-*"); len(left) > 0 {
			t.Errorf("the running command's bus lies in %v", left)
		}
		feed.Close()
		if err := c.Wait(); err != nil {
			var exit *cloche.ExitError
			if !errors.As(err, &exit) {
				t.Fatal(err)
			}
		}
		if err := s.session.Close(); err != nil {
			t.Fatal(err)
		}
		leavesNoBus(t, d)
	})
}

// busCallerVariable makes TestBusCaller the caller that is killed.
const busCallerVariable = "CLOCHE_TEST_BUS_CALLER"

// A9 F12: SIGKILL of cloche ends the proxy.
func TestBusKilled(t *testing.T) {
	testenv.AlsoAsAccount(t)
	for _, name := range []string{"native", "bwrap", "warm"} {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, map[string]string{"native": "userns", "bwrap": "bwrap", "warm": "userns"}[name])
			d := testbus.Start(t)
			caller := exec.Command(os.Args[0], "-test.run=^TestBusCaller$")
			caller.Env = append(os.Environ(), busCallerVariable+"="+name+","+workspace(t), "DBUS_SESSION_BUS_ADDRESS="+d.Address, "XDG_RUNTIME_DIR="+d.Dir)
			out, err := caller.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := caller.Start(); err != nil {
				t.Fatal(err)
			}
			readLine(t, out, "up")
			mountedSoon(t, d)
			if n := proxiesOf(d.Dir); len(n) != 1 {
				t.Errorf("there are %d proxies", len(n))
			}
			if err := caller.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = caller.Wait()
			leavesNoBus(t, d)
		})
	}
}

// mountedSoon waits until cloche, which learns of the start a little after the
// command, has removed what the sandbox has mounted.
func mountedSoon(t *testing.T, d *testbus.Daemon) {
	t.Helper()
	var left []string
	if !testenv.Becomes(func() bool { left, _ = filepath.Glob(d.Dir + "/cloche-bus-*"); return len(left) == 0 }) {
		t.Fatalf("the running command's bus lies in %v", left)
	}
}

// TestBusCaller is the process that TestBusKilled kills.
func TestBusCaller(t *testing.T) {
	name, dir, ok := strings.Cut(os.Getenv(busCallerVariable), ",")
	if !ok {
		t.Skip("runs as a part of TestBusKilled")
	}
	opts := []cloche.Option{cloche.WithWorkspace(dir)}
	if name == "warm" {
		name, opts = "native", append(opts, cloche.WithWarm())
	}
	s, err := cloche.Open(context.Background(), policy.Workspace(dir).With(policy.WithBackend(name), policy.Set("bus", "true")), opts...)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Command(context.Background(), "/bin/sh", "-c", "echo up; sleep 300")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	fmt.Fprintln(os.Stderr, c.Run())
}

// A9: the bus is found by every form of address that leads to a socket.
func TestBusAddresses(t *testing.T) {
	testenv.AlsoAsAccount(t)
	testenv.Need(t, "userns")
	d := testbus.Start(t)
	odd, err := os.MkdirTemp("/tmp", "cl a,b;c=d%ä")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(odd) })
	if err := os.Symlink(filepath.Join(d.Dir, "bus"), filepath.Join(odd, "bus")); err != nil {
		t.Fatal(err)
	}
	abstract := testbus.StartAt(t, odd, "unix:abstract="+filepath.Base(d.Dir))
	abstract.Own(t, "org.example.Abstract")
	d.Own(t, "org.example.Path")
	escaped := ""
	for _, c := range []byte(odd + "/bus") {
		escaped += fmt.Sprintf("%%%02X", c)
	}
	runtime := "XDG_RUNTIME_DIR=" + d.Dir
	for _, c := range []struct {
		name, service string
		env           []string
	}{
		{"variable", "org.example.Path", []string{"DBUS_SESSION_BUS_ADDRESS=" + d.Address + ",guid=0123456789abcdef0123456789abcdef", "XDG_RUNTIME_DIR="}},
		{"usual place", "org.example.Path", []string{"DBUS_SESSION_BUS_ADDRESS=", runtime}},
		{"runtime", "org.example.Path", []string{"DBUS_SESSION_BUS_ADDRESS=unix:runtime=yes", runtime}},
		{"escapes", "org.example.Path", []string{"DBUS_SESSION_BUS_ADDRESS=unix:path=" + escaped, runtime}},
		{"list", "org.example.Path", []string{"DBUS_SESSION_BUS_ADDRESS=unixexec:path=/bin/false;tcp:host=localhost,port=1;unix:path=/nowhere/bus;unix:tmpdir=/tmp;" + d.Address, runtime}},
		{"abstract", "org.example.Abstract", []string{"DBUS_SESSION_BUS_ADDRESS=" + abstract.Address, runtime}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := workspace(t)
			s := open(t, policy.Workspace(dir).With(policy.Set("bus.talk", c.service)), dir, cloche.WithDeferredPlan())
			sh := &shell{t, s, dir, append(os.Environ(), c.env...), false}
			if out, ok := sh.run(send(c.service, "org.example.I.M")); !ok {
				t.Errorf("the bus is not reached: %s", out)
			}
		})
	}
}

// A9: without a bus, and without the proxy, nothing runs, and the error says what
// to do.
func TestBusMissing(t *testing.T) {
	testenv.AlsoAsAccount(t)
	testenv.Need(t, "userns", "dbus")
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.Set("bus", "true")), dir, cloche.WithDeferredPlan())
	c := s.Command(t.Context(), "true")
	c.Env = []string{"PATH=/usr/bin:/bin", "DBUS_SESSION_BUS_ADDRESS=tcp:host=localhost,port=1;unix:path=/nowhere"}
	var wrong *cloche.PolicyError
	if err := c.Run(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "dbus-run-session") {
		t.Errorf("without a bus: %v", err)
	}
	d := testbus.Start(t)
	caller := exec.Command(os.Args[0], "-test.run=^TestBusWithoutProxy$", "-test.v")
	caller.Env = append(os.Environ(), busCallerVariable+"="+dir, "DBUS_SESSION_BUS_ADDRESS="+d.Address, "XDG_RUNTIME_DIR="+d.Dir)
	caller.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{capSysAdmin},
	}
	if out, err := caller.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestBusWithoutProxy")) {
		t.Errorf("without the proxy: %v: %s", err, out)
	}
	leavesNoBus(t, d)
}

const capSysAdmin = 21

// TestBusWithoutProxy runs in a mount namespace of its own, where it hides the
// proxy first.
func TestBusWithoutProxy(t *testing.T) {
	dir := os.Getenv(busCallerVariable)
	if !filepath.IsAbs(dir) {
		t.Skip("runs as a part of TestBusMissing")
	}
	program, err := exec.LookPath("xdg-dbus-proxy")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("/dev/null", program, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	s := open(t, policy.Workspace(dir).With(policy.Set("bus", "true")), dir, cloche.WithDeferredPlan())
	err = s.Command(t.Context(), "true").Run()
	var missing *bus.Error
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "install the package xdg-dbus-proxy") {
		t.Errorf("the error is %v", err)
	}
}
