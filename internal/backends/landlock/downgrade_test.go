package landlock

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/hostfs"
	ll "github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// files is a small machine.
var files = hostfs.Tree{
	"/bin": "-> usr/bin", "/dev/null": "device", "/etc/passwd": "file", "/etc/shadow": "file", "/etc/ssh/key": "file",
	"/home/ana/.ssh/id": "file", "/home/ana/notes": "file", "/home/ana/ws/.env": "file", "/home/ana/ws/main.go": "file",
	"/home/ana/ws/pkg/a.go": "file", "/home/ana/ws/link": "-> /etc", "/home/ana/ws/sock": "socket", "/proc/1": "dir", "/run/s": "socket", "/tmp": "dir", "/usr/bin/true": "exec",
}

func line(p string, a policy.Access, k host.Kind) plan.Path {
	e := plan.Path{Path: p, Access: a, Kind: k, Source: p}
	if a == policy.Hidden {
		e.Content, e.Source = plan.Empty, ""
	}
	return e
}

// base is what every plan has.
func base(more ...plan.Path) *plan.Plan {
	paths := []plan.Path{
		line("/", policy.Read, hostfs.Dir),
		{Path: "/dev", Access: policy.Write, Kind: hostfs.Dir, Content: plan.Devices},
		{Path: "/proc", Access: policy.Write, Kind: hostfs.Dir, Content: plan.Proc},
		line("/run", policy.Hidden, hostfs.Dir),
		{Path: "/tmp", Access: policy.Write, Kind: hostfs.Dir, Content: plan.Empty},
	}
	paths = append(paths, more...)
	slices.SortFunc(paths, func(a, b plan.Path) int { return strings.Compare(a.Path, b.Path) })
	return &plan.Plan{Workspace: "/home/ana/ws", Inside: "/home/ana/ws", Paths: paths,
		Command: &plan.Command{Path: "/usr/bin/true", Args: []string{"true"}, Dir: "/home/ana/ws"}}
}

func machine(abi int) *host.Snapshot {
	return &host.Snapshot{OS: "linux", Arch: "amd64", UID: 1000, FS: files, Landlock: host.Landlock{ABI: abi}}
}

// grantsText is the grants that are not for devices, short: "rwx PATH".
func grantsText(r rules) []string {
	var out []string
	for _, g := range r.grants {
		if g.kind == hostfs.Device {
			continue
		}
		text := ""
		for _, c := range []struct {
			right uint64
			name  string
		}{{ll.ReadFile, "r"}, {ll.ReadDir, "l"}, {ll.WriteFile, "w"}, {ll.MakeReg, "m"}, {ll.ResolveUnix, "c"}} {
			if g.rights&c.right != 0 {
				text += c.name
			}
		}
		out = append(out, text+" "+g.path)
	}
	return out
}

// W3 F14: the grants for a plan: deny inside allow by taking folders apart.
func TestGrants(t *testing.T) {
	ws := line("/home/ana/ws", policy.Write, hostfs.Dir)
	tests := []struct {
		name string
		plan *plan.Plan
		abi  int
		want []string
		gaps []string // beyond those that every plan has
	}{
		{name: "nothing hidden but the baseline", plan: base(ws), abi: 7,
			want: []string{"rl /etc", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}},
		{name: "a file hidden in a readable folder", plan: base(ws, line("/etc/shadow", policy.Hidden, hostfs.File)), abi: 7,
			want: []string{"l /etc", "r /etc/passwd", "rl /etc/ssh", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}},
		{name: "a folder hidden in a readable one", plan: base(ws, line("/etc/ssh", policy.Hidden, hostfs.Dir)), abi: 7,
			want: []string{"r /etc/passwd", "r /etc/shadow", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}},
		{name: "shown in hidden", plan: base(ws, line("/home", policy.Hidden, hostfs.Dir), line("/home/ana/notes", policy.Read, hostfs.File)), abi: 7,
			want: []string{"rl /etc", "r /home/ana/notes", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}},
		{name: "a file hidden in a writable folder", plan: base(ws, line("/home/ana/ws/.env", policy.Hidden, hostfs.File)), abi: 7,
			want: []string{"rl /etc", "l /home", "l /home/ana", "rl /home/ana/.ssh", "r /home/ana/notes", "l /home/ana/ws", "rw /home/ana/ws/main.go", "rlwm /home/ana/ws/pkg", "rl /proc", "rl /usr"},
			gaps: []string{"paths.write /home/ana/ws"}},
		{name: "found in a writable folder", plan: base(ws, found(line("/home/ana/ws/.env", policy.Hidden, hostfs.File))), abi: 7,
			want: []string{"rl /etc", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}, gaps: []string{"paths.hide_found /home/ana/ws/.env"}},
		{name: "found in a readable folder", plan: base(line("/home/ana/ws", policy.Read, hostfs.Dir), found(line("/home/ana/ws/.env", policy.Hidden, hostfs.File))), abi: 7,
			want: []string{"rl /etc", "l /home", "l /home/ana", "rl /home/ana/.ssh", "r /home/ana/notes", "l /home/ana/ws", "r /home/ana/ws/main.go", "rl /home/ana/ws/pkg", "rl /proc", "rl /usr"}},
		{name: "read-only in writable", plan: base(ws, line("/home/ana/ws/pkg", policy.Read, hostfs.Dir)), abi: 7,
			want: []string{"rl /etc", "rl /home", "rlwm /home/ana/ws", "rl /home/ana/ws/pkg", "rl /proc", "rl /usr"},
			gaps: []string{"paths.read /home/ana/ws/pkg"}},
		{name: "protected in writable", plan: base(ws, protect(line("/home/ana/ws/main.go", policy.Read, hostfs.File))), abi: 7,
			want: []string{"rl /etc", "rl /home", "rlwm /home/ana/ws", "r /home/ana/ws/main.go", "rl /proc", "rl /usr"},
			gaps: []string{"paths.protect /home/ana/ws/main.go"}},
		{name: "protected in readable", plan: base(ws, protect(line("/home/ana/notes", policy.Read, hostfs.File))), abi: 7,
			want: []string{"rl /etc", "rl /home", "r /home/ana/notes", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}},
		{name: "read-only beside hidden in writable", plan: base(ws, line("/home/ana/ws/.env", policy.Hidden, hostfs.File), line("/home/ana/ws/pkg", policy.Read, hostfs.Dir)), abi: 7,
			want: []string{"rl /etc", "l /home", "l /home/ana", "rl /home/ana/.ssh", "r /home/ana/notes", "l /home/ana/ws", "rw /home/ana/ws/main.go", "rl /home/ana/ws/pkg", "rl /proc", "rl /usr"},
			gaps: []string{"paths.write /home/ana/ws"}},
		{name: "a socket before ABI 9", plan: socket(base(ws, line("/home/ana/ws/sock", policy.Write, hostfs.Socket))), abi: 8,
			want: []string{"rl /etc", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}, gaps: []string{"sockets /home/ana/ws/sock"}},
		{name: "a socket with ABI 9", plan: socket(base(line("/home/ana/ws/sock", policy.Write, hostfs.Socket))), abi: 9,
			want: []string{"rl /etc", "rl /home", "c /home/ana/ws/sock", "rl /proc", "rl /usr"}},
		{name: "sockets that are shown elsewhere", plan: granted(base(line("/home/ana/ws/sock", policy.Write, hostfs.Socket))), abi: 9,
			want: []string{"rl /etc", "rl /home", "c /home/ana/ws/sock", "rl /proc", "rl /usr"},
			gaps: []string{"bus", "sockets /run/cloche/gnupg/S.gpg-agent", "sockets @name"}},
		{name: "bound from elsewhere", plan: base(ws, bind("/home/ana/ws/pkg", "/etc/ssh")), abi: 7,
			want: []string{"r /etc/passwd", "r /etc/shadow", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}, gaps: []string{"binds /etc/ssh"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := downgrade(tt.plan, machine(tt.abi))
			if got := grantsText(r); !slices.Equal(got, tt.want) {
				t.Errorf("the grants are\n%q, want\n%q", got, tt.want)
			}
			want := append(slices.Clone(usual), tt.gaps...)
			if slices.Contains(tt.plan.Guarded(), ws.Path) {
				want = append(want, "git "+ws.Path)
			}
			slices.Sort(want)
			if got := gapNames(r); !slices.Equal(got, want) {
				t.Errorf("the gaps are\n%q, want\n%q", got, want)
			}
		})
	}
}

func protect(e plan.Path) plan.Path { e.Protect = true; return e }

func found(e plan.Path) plan.Path { e.Found = true; return e }

func bind(from, to string) plan.Path {
	return plan.Path{Path: to, Source: from, Access: policy.Write, Kind: hostfs.Dir}
}

// granted adds what needs mounts, or a namespace of the network, to a socket that
// does not.
func granted(p *plan.Plan) *plan.Plan {
	const gpg = "/run/cloche/gnupg/S.gpg-agent"
	p = socket(p)
	p.Bus = &plan.Bus{Address: "unix:path=/run/bus", Path: wellknown.BusPath, Source: "/run/x/bus"}
	p.Sockets = append(p.Sockets, plan.SocketPath{Path: "@name", Source: "@name"}, plan.SocketPath{Path: gpg, Source: "/run/s"})
	for path, source := range map[string]string{wellknown.BusPath: p.Bus.Source, gpg: "/run/s"} {
		p.Paths = append(p.Paths, plan.Path{Path: path, Source: source, Kind: hostfs.Socket, Access: policy.Write})
	}
	return p
}

func socket(p *plan.Plan) *plan.Plan {
	p.Sockets = []plan.SocketPath{{Path: "/home/ana/ws/sock", Source: "/home/ana/ws/sock"}}
	return p
}

// usual are the gaps that every plan has from ABI 6 on.
var usual = []string{"network.interfaces", "paths.metadata", "processes", "tmp /tmp"}

func gapNames(r rules) []string {
	var out []string
	for _, g := range r.gaps {
		out = append(out, strings.TrimSpace(g.Rule+" "+g.Subject))
	}
	slices.Sort(out)
	return out
}

// W3 N4: what is not enforced under each ABI.
func TestDowngradeByABI(t *testing.T) {
	for abi, want := range map[int][]string{
		1:  {"lifetime", "network.interfaces", "paths.metadata", "paths.write", "paths.write", "processes", "tmp /tmp"},
		2:  {"lifetime", "network.interfaces", "paths.metadata", "paths.write", "processes", "tmp /tmp"},
		3:  {"lifetime", "network.interfaces", "paths.metadata", "processes", "tmp /tmp"},
		4:  {"lifetime", "network.interfaces", "paths.metadata", "processes", "tmp /tmp"},
		5:  {"lifetime", "network.interfaces", "paths.metadata", "processes", "tmp /tmp"},
		6:  usual,
		7:  usual,
		8:  usual,
		9:  usual,
		10: usual,
		11: usual,
	} {
		r := downgrade(base(line("/home/ana/ws", policy.Write, hostfs.Dir)), machine(abi))
		want = append([]string{"git /home/ana/ws"}, want...)
		if got := gapNames(r); !slices.Equal(got, want) {
			t.Errorf("ABI %d: the gaps are %q, want %q", abi, got, want)
		}
		for _, g := range r.grants {
			if g.rights&^r.ruleset.FS != 0 {
				t.Errorf("ABI %d: %s has rights that the ruleset does not handle: %s", abi, g.path, ll.FileRights(g.rights&^r.ruleset.FS))
			}
		}
		if !r.filter.DenyInet || !r.filter.DenyIPC || !r.filter.DenyOthers || r.filter.DenyUnix != (abi < 9) {
			t.Errorf("ABI %d: the filter is %+v", abi, r.filter)
		}
	}
}

// C3: the network modes.
func TestDowngradeNetwork(t *testing.T) {
	for mode, want := range map[policy.NetworkMode][]string{
		policy.NetworkNone:     {"network.interfaces"},
		policy.NetworkLoopback: {"network.interfaces", "network.mode loopback"},
		policy.NetworkUser:     {"network.interfaces", "network.mode user"},
		policy.NetworkHost:     nil,
	} {
		p := base()
		p.Network.Mode = mode
		r := downgrade(p, machine(7))
		open := mode == policy.NetworkHost
		if r.filter.DenyInet == open || (r.ruleset.Net == 0) != open || r.ruleset.Scoped != ll.ScopeAbstractUnix|ll.ScopeSignal {
			t.Errorf("%s: the filter is %+v, the ruleset %v", mode, r.filter, r.ruleset)
		}
		got := slices.DeleteFunc(gapNames(r), func(s string) bool { return !strings.HasPrefix(s, "network") })
		if !slices.Equal(got, want) {
			t.Errorf("%s: the gaps are %q, want %q", mode, got, want)
		}
	}
}

// L3: without mounts a remapped workspace is used where it is.
func TestRemap(t *testing.T) {
	p := base(line("/home/ana/ws", policy.Hidden, hostfs.Dir), plan.Path{Path: "/workspace", Source: "/home/ana/ws", Access: policy.Write, Kind: hostfs.Dir},
		plan.Path{Path: "/workspace/.env", Access: policy.Hidden, Kind: hostfs.File, Content: plan.Empty})
	p.Inside, p.Command.Dir, p.Command.Path = "/workspace", "/workspace/pkg", "/workspace/tool"
	own := program.WithoutRemap(p)
	if own.Command.Dir != "/home/ana/ws/pkg" || own.Command.Path != "/home/ana/ws/tool" || p.Command.Dir != "/workspace/pkg" {
		t.Errorf("the command is %+v", own.Command)
	}
	r := downgrade(p, machine(7))
	if !slices.Contains(gapNames(r), "remap /workspace") {
		t.Errorf("the gaps are %q", gapNames(r))
	}
	got := grantsText(r)
	if !slices.Contains(got, "rw /home/ana/ws/main.go") || slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, ".env") || strings.Contains(s, "/workspace") }) {
		t.Errorf("the grants are %q", got)
	}
}

// N13: where a folder may not be listed, what programs need is found by name.
func TestFoldersThatCannotBeListed(t *testing.T) {
	s := machine(7)
	s.FS = unlistable{files}
	got := grantsText(downgrade(base(line("/home/ana/ws", policy.Write, hostfs.Dir), line("/etc/ssh", policy.Hidden, hostfs.Dir)), s))
	want := []string{"r /etc/passwd", "rl /home", "rlwm /home/ana/ws", "rl /proc", "rl /usr"}
	if !slices.Equal(got, want) {
		t.Errorf("the grants are %q, want %q", got, want)
	}
}

// unlistable is a machine of which every path can be looked at and no folder
// be listed.
type unlistable struct{ hostfs.FS }

func (unlistable) ReadDir(p string) ([]string, error) {
	return nil, &fs.PathError{Op: "readdir", Path: p, Err: fs.ErrPermission}
}

// Gaps are few: the same reason is named once.
func TestGapsAreGrouped(t *testing.T) {
	var l gapList
	for _, p := range []string{"/a", "/b", "/c", "/d", "/e"} {
		l.add("paths.protect", p, "why", "", policy.Origin{})
	}
	l.add("paths.protect", "/f", "another reason", "", policy.Origin{})
	got := l.List()
	if len(got) != 2 || got[0].Subject != "/a, /b, /c and 2 more" || got[1].Subject != "/f" {
		t.Errorf("the gaps are %+v", got)
	}
}

// A machine without Landlock cannot be compiled for.
func TestNoLandlock(t *testing.T) {
	s := machine(0)
	s.Landlock.Reason = "switched off"
	if _, err := New(nil).Compile(base(), s); err == nil || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("the error is %v", err)
	}
}
