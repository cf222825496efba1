package native_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/native"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/sysprog"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A leaky backend makes no mount read-only, and may have no second layer.
type leaky struct {
	*native.Backend
	noLandlock bool
}

func (b leaky) snapshot(s *host.Snapshot) *host.Snapshot {
	own := *s
	if b.noLandlock {
		own.Landlock = host.Landlock{}
	}
	return &own
}

func (b leaky) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	l, err := b.Backend.Compile(p, b.snapshot(s))
	return writable(l), err
}

func (b leaky) Park(p *plan.Plan, s *host.Snapshot, how builtin.Sharing) (*backend.Launch, error) {
	l, err := b.Backend.Park(p, b.snapshot(s), how)
	return writable(l), err
}

func (b leaky) Enter(p *plan.Plan, s *host.Snapshot, how builtin.Sharing, like *backend.Launch) (*backend.Launch, error) {
	return b.Backend.Enter(p, b.snapshot(s), how, like)
}

// writable takes the read-only attribute out of all steps of a launch.
func writable(l *backend.Launch) *backend.Launch {
	if l == nil {
		return nil
	}
	for _, s := range l.Program.Steps {
		for i := range s.Args {
			if a := &s.Args[i]; s.Call == "mount_setattr" && a.Kind == sysprog.KindBytes {
				data := []byte(a.Text)
				set := binary.LittleEndian.Uint64(data)
				binary.LittleEndian.PutUint64(data, set&^uint64(sysprog.MountAttrReadOnly))
				a.Text = string(data)
			}
		}
	}
	return l
}

// modes are the ways to run a command.
var modes = map[string][]cloche.Option{"cold": nil, "warm": {cloche.WithWarm()}, "fast": {cloche.WithWarmFast()}}

// shell runs a script in a session of the backend.
func shell(t *testing.T, b backend.Backend, mode, workspace, script string, opts ...policy.Option) *cloche.Result {
	t.Helper()
	registry, err := backend.NewRegistry(backend.Entry{Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Workspace(workspace).With(opts...)
	s, err := cloche.Open(t.Context(), p, append(modes[mode], cloche.WithRegistry(registry), cloche.WithWorkspace(workspace))...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Command(t.Context(), "sh", "-c", script).Capture()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newBackend() *native.Backend {
	return native.New(func(s *host.Snapshot) host.Probe { return native.Probe(context.Background(), s) })
}

// guarding is a backend that guards the paths.
func guarding(paths ...string) *native.Backend {
	b := newBackend()
	b.Guard = func(*plan.Plan) []string { return paths }
	return b
}

// W3 F3: where the mounts leave something writable that should not be, Landlock
// alone refuses to write it; without Landlock the write succeeds, so that the
// mounts here really are leaky.
func TestSecondLayer(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	testenv.AlsoAsUser(t)
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			for _, bare := range []bool{false, true} {
				ws, dir := t.TempDir(), t.TempDir()
				file := filepath.Join(dir, "file")
				if err := os.WriteFile(file, []byte("old"), 0o666); err != nil {
					t.Fatal(err)
				}
				b := leaky{newBackend(), bare}
				r := shell(t, b, mode, ws, `echo in > ok && cat ok; echo new > /mnt/file; truncate -s 1 /mnt/file; : > /mnt/made; exit 0`, policy.WithBind(dir, "/mnt", true))
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				_, err = os.Stat(filepath.Join(dir, "made"))
				if wrote := string(text) != "old" || err == nil; wrote != bare || string(r.Stdout) != "in\n" {
					t.Errorf("without Landlock %v: written outside %v; the command said %q, %q", bare, wrote, r.Stdout, r.Stderr)
				}
			}
		})
	}
}

// N1: in a guarded directory the command can only read and execute.
// Everything else is left to a broker; without one it is refused.
func TestGuarded(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	testenv.AlsoAsUser(t)
	const script = `
		cd /mnt; cat file; ./program
		(echo x > new); (echo x > file); (echo x >> file); mkdir d; mv file other; ln file other; ln -s file other; rm file; mkfifo p
		truncate -s 0 file; rmdir folder
		echo x > /tmp/own && cat /tmp/own`
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"file": "kept\n", "program": "#!/bin/sh\necho ran\n", "folder/x": ""} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r := shell(t, guarding("/mnt").Unbrokered(), mode, t.TempDir(), script, policy.WithBind(dir, "/mnt", false))
			// Without a broker nobody connects for the command, which is said.
			others := slices.DeleteFunc(r.Gaps, func(g backend.Gap) bool { return g.Rule == "sockets.later" && g.Optional })
			if string(r.Stdout) != "kept\nran\nx\n" || len(others) > 0 {
				t.Errorf("it said %q, gaps %v", r.Stdout, others)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			text, err := os.ReadFile(filepath.Join(dir, "file"))
			if got := strings.Join(names, " "); got != "file folder program" || err != nil || string(text) != "kept\n" {
				t.Errorf("left: %s; file has %q, %v", got, text, err)
			}
		})
	}
}

// N8: without a broker no socket can be bound in a guarded directory. A bind
// that goes on in the kernel, with a name that was changed meanwhile, ends here.
func TestGuardedSocket(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "python3")
	r := shell(t, guarding("/mnt").Unbrokered(), "cold", t.TempDir(), `cd /mnt; exec python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'`, policy.WithBind(t.TempDir(), "/mnt", false))
	if !strings.Contains(string(r.Stderr), "PermissionError") {
		t.Errorf("it said %q, %q", r.Stdout, r.Stderr)
	}
}

// N4: what Landlock cannot guard is a gap.
func TestGuardGaps(t *testing.T) {
	p := &plan.Plan{
		Command: &plan.Command{Path: "/bin/true", Args: []string{"true"}, Dir: "/"},
		Paths: []plan.Path{
			{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read},
			{Path: "/ws", Source: "/ws", Kind: hostfs.Dir, Access: policy.Write},
			{Path: "/ws/in", Source: "/ws/in", Kind: hostfs.Dir, Access: policy.Write},
		},
		Globs: []plan.Glob{{Pattern: "**/.envrc", Access: policy.Read}},
	}
	for _, tt := range []struct {
		name   string
		abi    int
		guards []string
		gaps   int
	}{
		// The pattern, git directories, and the host's sockets that are made later.
		{"no Landlock", 0, []string{"/ws"}, 3},
		{"Landlock that denies all moves", 1, []string{"/ws", "/ws/in"}, 3},
		{"Landlock", 2, []string{"/ws", "/ws/in"}, 0},
		{"in a folder that is not guarded", 7, []string{"/ws/in"}, 1},
	} {
		l, err := guarding(tt.guards...).Compile(p, &host.Snapshot{OS: "linux", Arch: "amd64", UID: 1000, GID: 1000, Landlock: host.Landlock{ABI: tt.abi}})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Gaps) != tt.gaps {
			t.Errorf("%s: gaps %v, want %d", tt.name, l.Gaps, tt.gaps)
		}
	}
}
