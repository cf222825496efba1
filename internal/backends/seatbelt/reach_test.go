package seatbelt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func connect(protocol, at string, port int) request {
	return request{Operation: "network-outbound", Remote: &address{Protocol: protocol, Host: at, Port: port}}
}

func listen(operation, at string, port int) request {
	return request{Operation: operation, Local: &address{Protocol: "tcp", Host: at, Port: port}}
}

func dial(path string) request {
	return request{Operation: "network-outbound", Remote: &address{Protocol: "unix", Path: path}}
}

// C5 C3: what each mode of the network reaches, and the ports of each rule.
func TestNetworkRules(t *testing.T) {
	port := func(n int) plan.Port {
		return plan.Port{Address: "127.0.0.1", Host: n, Inside: n, Protocol: "tcp"}
	}
	for _, c := range []struct {
		network plan.Network
		open    []request
		closed  []request
	}{
		{network: plan.Network{Mode: policy.NetworkNone},
			closed: []request{connect("tcp", "localhost", 80), connect("udp", "8.8.8.8", 53), listen("network-bind", "localhost", 80), listen("network-inbound", "10.0.0.1", 80)}},
		{network: plan.Network{Mode: policy.NetworkUser, Allow: []plan.HostPort{{Host: "a.example"}}},
			closed: []request{connect("tcp", "localhost", 80), connect("tcp", "1.2.3.4", 443)}},
		{network: plan.Network{Mode: policy.NetworkLoopback},
			open:   []request{connect("tcp", "localhost", 80), connect("udp", "localhost", 53), listen("network-bind", "localhost", 80)},
			closed: []request{connect("tcp", "10.0.0.1", 80), listen("network-inbound", "10.0.0.1", 80)}},
		{network: plan.Network{Mode: policy.NetworkHost},
			open:   []request{connect("tcp", "localhost", 80), connect("udp", "8.8.8.8", 53), listen("network-bind", "10.0.0.1", 80), dial(nameServer)},
			closed: []request{dial("/private/var/run/docker.sock")}},
		{network: plan.Network{Mode: policy.NetworkNone, Publish: []plan.Port{port(8080)}, Forward: []plan.Port{port(5432)}},
			open:   []request{listen("network-bind", "localhost", 8080), listen("network-inbound", "localhost", 8080), connect("tcp", "localhost", 5432)},
			closed: []request{listen("network-bind", "localhost", 8081), connect("tcp", "localhost", 8080), connect("udp", "localhost", 5432), connect("tcp", "10.0.0.1", 5432)}},
		{network: plan.Network{Mode: policy.NetworkNone, Publish: []plan.Port{{Address: "0.0.0.0", Host: 80, Inside: 80, Protocol: "tcp"}}, Forward: []plan.Port{{Address: "127.0.0.1", Host: 1, Inside: 2, Protocol: "tcp"}}},
			closed: []request{listen("network-bind", "localhost", 80), connect("tcp", "localhost", 1), connect("tcp", "localhost", 2)}},
	} {
		profile, text := parsed(t, &plan.Plan{Network: c.network})
		for _, r := range c.open {
			if !allows(t, profile, r) {
				t.Errorf("%s: closed: %+v %+v %+v\n%s", c.network.Mode, r.Operation, r.Remote, r.Local, text)
			}
		}
		for _, r := range append(c.closed, dial("/Users/ana/x.sock"), dial("")) {
			if allows(t, profile, r) {
				t.Errorf("%s: open: %+v %+v %+v\n%s", c.network.Mode, r.Operation, r.Remote, r.Local, text)
			}
		}
	}
}

// C5: a granted socket is reached, and none beside, below or above it.
func TestSocketsAreExact(t *testing.T) {
	profile, _ := parsed(t, &plan.Plan{Sockets: []plan.SocketPath{
		{Path: "/var/run/docker.sock", Source: "/var/run/docker.sock"}, {Path: "/inside.sock", Source: "/Users/ana/other.sock"}, {Path: "@name", Source: "@name"}}})
	if !allows(t, profile, dial("/private/var/run/docker.sock")) {
		t.Error("the granted socket is closed")
	}
	for _, p := range []string{"/private/var/run/docker.sock2", "/private/var/run/docker.sock/x", "/private/var/run", "/Users/ana/other.sock", "/inside.sock", "@name"} {
		if allows(t, profile, dial(p)) {
			t.Errorf("%s is open", p)
		}
	}
	if !allows(t, profile, dial(testTmp+"/own.sock")) {
		t.Error("a socket of the run's own is closed")
	}
}

// C5 A3: of the system only what programs need: no service that starts others or
// holds secrets, no other process, no device.
func TestServices(t *testing.T) {
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkHost} {
		profile, _ := parsed(t, &plan.Plan{Network: plan.Network{Mode: mode}, Paths: []plan.Path{{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read}, {Path: "/dev", Kind: hostfs.Dir, Content: plan.Devices, Access: policy.Write}}})
		ask := func(operation, name string) bool {
			return allows(t, profile, request{Operation: operation, Name: name})
		}
		for _, s := range []string{"com.apple.SecurityServer", "com.apple.securityd.xpc", "com.apple.coreservices.launchservicesd", "com.apple.pasteboard.1", "com.apple.cfprefsd.agent", "com.apple.FSEvents", "com.apple.tccd"} {
			if ask("mach-lookup", s) {
				t.Errorf("%s: %s can be asked", mode, s)
			}
		}
		if ask("mach-lookup", "com.apple.trustd.agent") != (mode == policy.NetworkHost) || !ask("mach-lookup", "com.apple.system.opendirectoryd.libinfo") {
			t.Errorf("%s: services of the network, or of every program", mode)
		}
		if ask("sysctl-read", "kern.proc.all") || ask("sysctl-read", "kern.procargs2") || !ask("sysctl-read", "hw.ncpu") || !ask("sysctl-read", "kern.osrelease") {
			t.Errorf("%s: settings", mode)
		}
		for _, operation := range []string{"iokit-open", "iokit-get-properties", "nvram-set", "job-creation", "lsopen", "appleevent-send", "ipc-posix-shm-write-create"} {
			if ask(operation, "x") {
				t.Errorf("%s: %s is open", mode, operation)
			}
		}
		checkProcesses(t, profile)
		checkDevices(t, profile)
	}
}

func checkProcesses(t *testing.T, profile *readProfile) {
	t.Helper()
	for _, operation := range []string{"signal", "process-info-pidinfo"} {
		if allows(t, profile, request{Operation: operation}) || !allows(t, profile, request{Operation: operation, SameSandbox: true}) {
			t.Errorf("%s is not for this sandbox alone", operation)
		}
	}
}

func checkDevices(t *testing.T, profile *readProfile) {
	t.Helper()
	file := func(operation, p, extension string) bool {
		return allows(t, profile, request{Operation: operation, Path: p, Extension: extension})
	}
	if !file("file-write-data", "/dev/null", "") || !file("file-read-data", "/dev/urandom", "") || file("file-write-data", "/dev/disk0", "") || file("file-read-data", "/dev/rdisk0", "") {
		t.Error("devices")
	}
	if file("file-read-data", "/dev/ttys003", "") || !file("file-read-data", "/dev/ttys003", "com.apple.sandbox.pty") {
		t.Error("terminals of others can be opened, or own ones cannot")
	}
}

// A1 A11: every part of a plan that a profile does not hold is a gap; only what
// nobody asked for is optional.
func TestGaps(t *testing.T) {
	asked := policy.Origin{Layer: policy.LayerUser, Source: "policy.yaml"}
	ws := plan.Path{Path: "/ws", Source: "/ws", Kind: hostfs.Dir, Access: policy.Write}
	for _, c := range []struct {
		name string
		plan plan.Plan
		want string
	}{
		{"nothing", plan.Plan{}, "-ipc -lifetime -network.loopback"},
		{"remap", plan.Plan{Workspace: "/ws", Inside: "/workspace"}, "-ipc -lifetime -network.loopback remap"},
		{"bind", plan.Plan{Paths: []plan.Path{{Path: "/data", Source: "/x", Kind: hostfs.Dir, Access: policy.Read}}}, "-ipc -lifetime -network.loopback binds"},
		{"persist", plan.Plan{Paths: []plan.Path{{Path: "/data", Source: "/x", Kind: hostfs.Dir, Access: policy.Write, Create: true}}}, "-ipc -lifetime -network.loopback persist"},
		{"tmp", plan.Plan{Paths: []plan.Path{{Path: "/private/tmp", Kind: hostfs.Dir, Content: plan.Empty, Access: policy.Write}}}, "-ipc -lifetime -network.loopback -tmp"},
		{"hosts", plan.Plan{Paths: []plan.Path{{Path: "/private/etc/hosts", Kind: hostfs.File, Content: plan.Text, Access: policy.Read, Origin: asked}}}, "-ipc -lifetime -network.loopback hosts"},
		{"loopback", plan.Plan{Network: plan.Network{Mode: policy.NetworkLoopback}}, "-ipc -lifetime network.mode"},
		{"user", plan.Plan{Network: plan.Network{Mode: policy.NetworkUser}}, "-ipc -lifetime network.mode"},
		{"host", plan.Plan{Network: plan.Network{Mode: policy.NetworkHost}}, "-ipc -lifetime"},
		{"port", plan.Plan{Network: plan.Network{Publish: []plan.Port{{Address: "127.0.0.1", Host: 1, Inside: 2}}}}, "-ipc -lifetime -network.loopback network.publish"},
		{"sockets", plan.Plan{Sockets: []plan.SocketPath{{Path: "@a", Source: "@a"}}, Bus: &plan.Bus{}}, "-ipc -lifetime -network.loopback bus sockets"},
		{"memory", plan.Plan{Limits: []plan.Limit{{Name: plan.LimitMemory, Value: 1, Origin: asked}, {Name: plan.LimitProcesses, Value: 1}}}, "-ipc -lifetime -limits.processes -network.loopback limits.memory"},
		{"held limits", plan.Plan{Limits: []plan.Limit{{Name: plan.LimitFileSize, Value: 1, Origin: asked}, {Name: plan.LimitTime, Value: 1, Origin: asked}}}, "-ipc -lifetime -network.loopback"},
		{"place", plan.Plan{Paths: []plan.Path{ws}, Globs: []plan.Glob{{Pattern: "/ws/src/**/gen", Access: policy.Read, Origin: asked}}}, "-git.config -ipc -lifetime -network.loopback paths.protect"},
		{"excepted", plan.Plan{Paths: []plan.Path{ws}, Globs: []plan.Glob{{Pattern: "**/gen", Access: policy.Read, ExceptUnder: []string{"x"}, Origin: policy.Origin{Layer: policy.LayerPreset}}}}, "-git.config -ipc -lifetime -network.loopback -paths.protect"},
	} {
		_, gaps, err := Profile(&c.plan)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range gaps {
			name := g.Rule
			if g.Optional {
				name = "-" + name
			}
			got = append(got, name)
		}
		if slices.Sort(got); strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", c.name, strings.Join(got, " "), c.want)
		}
	}
}

// F11: nothing of a plan gets into the text of a shell: names and arguments are
// parameters. Limits that macOS has are set, and the descriptor is closed.
func TestLaunch(t *testing.T) {
	p := &plan.Plan{
		Command: &plan.Command{Path: "/ws/a;b", Args: []string{"$(id)", "x y", "-p", "`id`"}, Dir: "/ws", ExtraFiles: 2},
		Env:     []plan.Var{{Name: "PWD", Value: "/ws"}, {Name: "TMPDIR", Value: "/elsewhere"}},
		Limits:  []plan.Limit{{Name: plan.LimitOpenFiles, Value: 99}, {Name: plan.LimitFileSize, Value: 1025}},
	}
	l, err := New(nil).Compile(p, &host.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/usr/bin/sandbox-exec", "-p", l.Profile, "/bin/bash", "-p", "-c",
		`ulimit -f 2 || exit 125; ulimit -n 99 2>/dev/null; printf . >&5 || exit 125; exec 5>&-; unset OLDPWD SHLVL; exec -a "$0" "$@"`,
		"$(id)", "/ws/a;b", "x y", "-p", "`id`"}
	if !slices.Equal(l.Argv, want) {
		t.Errorf("argv %q", l.Argv)
	}
	if !slices.Equal(l.Env, []string{"PWD=/ws"}) || l.FirstFD != 5 || !l.Confined || l.PrivateTmp != tmpParam || l.Dir != "/ws" {
		t.Errorf("launch %+v", l)
	}
}

// A11: why the backend cannot be used is typed.
func TestAvailable(t *testing.T) {
	yes, no := host.Probe{Outcome: host.Yes}, host.Probe{Outcome: host.No, Reason: "because"}
	for probe, want := range map[host.Probe]string{yes: "<nil>", no: "backend seatbelt is not available: because", {Reason: "time"}: "backend seatbelt: inconclusive: time"} {
		if got := fmt.Sprint(New(nil).Available(&host.Snapshot{Seatbelt: probe})); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if _, err := New(nil).Compile(&plan.Plan{Privileged: true, Command: &plan.Command{Args: []string{"x"}}}, &host.Snapshot{}); err == nil {
		t.Error("privileges are granted by a profile")
	}
}
