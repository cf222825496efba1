package resolve

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/busaddress"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// busMachine is a machine with a session bus and agents at their usual places.
func busMachine(environ ...string) *host.Snapshot {
	m := machine()
	tree := m.FS.(hostfs.Tree)
	for _, p := range []string{"/run/user/1000/bus", "/tmp/odd ä/bus", "/run/user/1000/gnupg/S.gpg-agent", "/run/user/1000/gnupg/S.gpg-agent.extra",
		"/run/user/1000/gnupg/d.ffabiqijjfckceggnzrykjtw/S.gpg-agent.extra", "/home/ana/.gnupg/S.gpg-agent"} {
		tree[p] = "socket"
	}
	tree["/home/ana/project/bus"] = "-> /run/user/1000/bus"
	m.Environ = environ
	return m
}

func busPolicy(names ...string) policy.Policy {
	return workspacePolicy().With(policy.Set("bus", "true"), policy.Set("bus.talk", names...))
}

// A9: the first address of the list that leads to a socket is the bus.
func TestBusAddress(t *testing.T) {
	const variable = "DBUS_SESSION_BUS_ADDRESS="
	const usual = "unix:path=/run/user/1000/bus"
	for _, tt := range []struct {
		name    string
		environ []string
		want    string // an address, or a part of the error
	}{
		{"nothing is set", nil, usual},
		{"runtime folder", []string{"XDG_RUNTIME_DIR=/run/user/1000"}, usual},
		{"empty", []string{variable}, usual},
		{"path", []string{variable + usual + ",guid=00"}, usual},
		{"runtime", []string{variable + "unix:runtime=yes", "XDG_RUNTIME_DIR=/run/user/1000/"}, usual},
		{"abstract", []string{variable + "unix:abstract=/tmp/dbus-x%20y"}, "unix:abstract=/tmp/dbus-x%20y"},
		{"escapes", []string{variable + "unix:path=%2ftmp/odd%20%C3%a4/bus"}, "unix:path=/tmp/odd%20%c3%a4/bus"},
		{"second", []string{variable + "unix:path=/nowhere;;" + usual}, usual},
		{"no program is started", []string{variable + "unixexec:path=/bin/sh"}, "the transport unixexec is not used"},
		{"no launch", []string{variable + "autolaunch:"}, "the transport autolaunch is not used"},
		{"no network", []string{variable + "tcp:host=h,port=1"}, "the transport tcp is not used"},
		{"folder", []string{variable + "unix:dir=/tmp"}, "is for the bus to listen in"},
		{"missing", []string{variable + "unix:path=/nowhere"}, "/nowhere does not exist"},
		{"a file", []string{variable + "unix:path=/etc/hosts"}, "is a file, not a socket"},
		{"relative", []string{variable + "unix:path=bus"}, `"bus" is relative`},
		{"a link that the command can change", []string{variable + "unix:path=/home/ana/project/bus"}, "lies in a folder that the command can write"},
		{"no transport", []string{variable + "/run/bus"}, "has no transport"},
		{"NUL", []string{variable + "unix:path=/a%00b"}, "cannot be read"},
		{"half an escape", []string{variable + "unix:path=/a%4"}, "cannot be read"},
		{"key twice", []string{variable + "unix:path=/a,path=/b"}, "cannot be read"},
		{"no key", []string{variable + "unix:guid=0"}, "it names no socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Resolve(busPolicy(), Request{Workspace: "/home/ana/project"}, busMachine(tt.environ...))
			switch {
			case strings.HasPrefix(tt.want, "unix:"):
				if err != nil || p.Bus.Address != tt.want {
					t.Errorf("got %v, %v, want %s", p, err, tt.want)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "dbus-run-session"):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// A9 A4: the bus is shown at a place of its own, by a variable, and the host's
// socket is not.
func TestBusLines(t *testing.T) {
	p := mustResolve(t, busPolicy("org.example.A", "org.freedesktop.systemd1"), Request{}, busMachine("DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus", "XDG_RUNTIME_DIR=/run/user/1000"))
	line := p.Lookup(wellknown.BusPath)
	if line.Kind != hostfs.Socket || line.Access != policy.Write || line.Source != "/run/user/1000/cloche-bus-*/bus" {
		t.Errorf("the line is %+v", line)
	}
	wantAccess(t, p, map[string]policy.Access{"/run/user/1000/bus": policy.Hidden})
	if got := variable(p, wellknown.BusVariable); got != "unix:path="+wellknown.BusPath {
		t.Errorf("the variable is %q", got)
	}
	if got := variable(p, "XDG_RUNTIME_DIR"); got != "" {
		t.Errorf("XDG_RUNTIME_DIR passes: %q", got)
	}
	warned := 0
	for _, n := range p.Notices {
		if n.Kind == plan.NoticeWarning {
			warned++
			if !strings.Contains(n.Text, "org.freedesktop.systemd1") || !strings.Contains(n.Text, "starts programs outside") {
				t.Errorf("the notice says %q", n.Text)
			}
		}
	}
	if warned != 1 {
		t.Errorf("%d warnings", warned)
	}
	placed := p.WithBusAt("/run/x/bus")
	if placed.Bus.Source != "/run/x/bus" || placed.Lookup(wellknown.BusPath).Source != "/run/x/bus" {
		t.Errorf("the bus is placed at %+v", placed.Bus)
	}
	if p.Bus.Source == placed.Bus.Source || p.Lookup(wellknown.BusPath).Source == placed.Bus.Source {
		t.Error("the plan was changed")
	}
	if none := mustResolve(t, workspacePolicy(), Request{}, busMachine("DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus")); none.Bus != nil || variable(none, wellknown.BusVariable) != "" {
		t.Errorf("a bus that nobody granted: %+v", none.Bus)
	}
}

func variable(p *plan.Plan, name string) string {
	for _, v := range p.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// A4: agents are found where they are, and shown at a place of their own.
func TestAgents(t *testing.T) {
	for _, tt := range []struct {
		name, agent, environ string
		source, path         string
		warns                bool
	}{
		{"ssh", "ssh-agent", "SSH_AUTH_SOCK=/run/agent", "/run/agent", "/run/cloche/ssh-agent", false},
		{"gpg", "gpg-agent", "", "/run/user/1000/gnupg/S.gpg-agent.extra", "/run/cloche/gnupg/S.gpg-agent", false},
		{"gpg of another home", "gpg-agent", "GNUPGHOME=/tmp/gh", "/run/user/1000/gnupg/d.ffabiqijjfckceggnzrykjtw/S.gpg-agent.extra", "/run/cloche/gnupg/S.gpg-agent", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustResolve(t, workspacePolicy().With(policy.AllowSocket(tt.agent)), Request{}, busMachine(tt.environ))
			if len(p.Sockets) != 1 || p.Sockets[0].Source != tt.source || p.Sockets[0].Path != tt.path {
				t.Fatalf("the sockets are %+v", p.Sockets)
			}
			s := p.Sockets[0]
			if variable(p, s.Variable) != s.Value || !strings.HasPrefix(tt.path, s.Value) {
				t.Errorf("%s is %q", s.Variable, variable(p, s.Variable))
			}
			wantAccess(t, p, map[string]policy.Access{tt.path: policy.Write, tt.source: policy.Hidden})
			if line := p.Lookup(tt.path); line.Source != tt.source || line.Kind != hostfs.Socket {
				t.Errorf("the line is %+v", line)
			}
		})
	}
	t.Run("gpg without a restricted socket", func(t *testing.T) {
		m := busMachine("GNUPGHOME=/home/ana/.gnupg/")
		delete(m.FS.(hostfs.Tree), "/run/user/1000/gnupg/S.gpg-agent.extra")
		p := mustResolve(t, workspacePolicy().With(policy.AllowSocket("gpg-agent")), Request{}, m)
		if len(p.Sockets) != 1 || p.Sockets[0].Source != "/run/user/1000/gnupg/S.gpg-agent" {
			t.Fatalf("the sockets are %+v", p.Sockets)
		}
		if !strings.Contains(p.Notices[len(p.Notices)-1].Text, "no restricted socket") {
			t.Errorf("nothing warns: %v", p.Notices)
		}
	})
	t.Run("no gpg", func(t *testing.T) {
		_, err := Resolve(workspacePolicy().With(policy.AllowSocket("gpg-agent")), Request{Workspace: "/home/ana/project"}, busMachine("GNUPGHOME=/tmp/none"))
		if err == nil || !strings.Contains(err.Error(), "gpgconf --launch gpg-agent") {
			t.Errorf("the error is %v", err)
		}
	})
}

// A backend without mounts leads the command to the agent's own socket.
func TestAgentAtHome(t *testing.T) {
	p := mustResolve(t, workspacePolicy().With(policy.AllowSocket("ssh-agent")), Request{NoMounts: true}, busMachine("SSH_AUTH_SOCK=/run/agent"))
	if p.Sockets[0].Path != "/run/agent" || variable(p, "SSH_AUTH_SOCK") != "/run/agent" {
		t.Errorf("%+v, %q", p.Sockets, variable(p, "SSH_AUTH_SOCK"))
	}
	wantAccess(t, p, map[string]policy.Access{"/run/agent": policy.Write, "/run/cloche/ssh-agent": policy.Hidden})
}

// C2: an abstract socket has no line among the paths; one in a workspace that is
// shown elsewhere is found there.
func TestSocketPlaces(t *testing.T) {
	pol := workspacePolicy().With(policy.AllowSocket("@name", "/home/ana/project/own.sock"), policy.Set("remap", "/w"))
	p := mustResolve(t, pol, Request{}, machine())
	if len(p.Sockets) != 2 || !p.Sockets[0].Abstract() || p.Sockets[1].Abstract() || p.Sockets[1].Path != "/w/own.sock" {
		t.Errorf("the sockets are %+v", p.Sockets)
	}
	for _, e := range p.Paths {
		if strings.Contains(e.Path, "@name") {
			t.Errorf("the abstract socket has the line %+v", e)
		}
	}
}

// The parser takes anything.
func FuzzBusAddress(f *testing.F) {
	for _, s := range []string{"", "unix:path=/a", "unix:abstract=%61;tcp:", "unix:path=%", "unix:a=b,,c", ";;;"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, a := range busaddress.Parse(s, "/run") {
			if (a.Path != "") == (a.Abstract != "") && a.Refused == "" {
				t.Fatalf("%q gives %+v", s, a)
			}
			if a.Refused != "" {
				continue
			}
			again := busaddress.Parse(a.String(), "")
			if len(again) != 1 || again[0] != a {
				t.Fatalf("%q is %+v, and written again %q, %+v", s, a, a.String(), again)
			}
		}
	})
}

// C2: a socket is not granted through a link that the command could point at
// another one before the next run.
func TestSocketThroughLooseLink(t *testing.T) {
	for _, grant := range []string{"/home/ana/project/bus", "ssh-agent", "?ssh-agent"} {
		pol := workspacePolicy().With(policy.AllowSocket(grant))
		_, err := Resolve(pol, Request{Workspace: "/home/ana/project"}, busMachine("SSH_AUTH_SOCK=/home/ana/project/bus"))
		if err == nil || !strings.Contains(err.Error(), "leads through /home/ana/project/bus") {
			t.Errorf("%s: the error is %v", grant, err)
		}
	}
}
