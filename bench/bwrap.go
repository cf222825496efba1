package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// openBwrap is bubblewrap on its own with the mounts, namespaces and variables
// of cloche's plan for the same job: what a script around bwrap would do that
// wants the same result. It has no seccomp filter and no limits.
func openBwrap(ctx context.Context, l *lab, j job) (*runner, error) {
	session, err := cloche.Open(ctx, j.policy(), cloche.WithWorkspace(j.Workspace))
	if err != nil {
		return nil, err
	}
	p, err := session.Explain()
	if err := errors.Join(err, session.Close()); err != nil {
		return nil, err
	}
	m := &mounter{texts: filepath.Join(l.dir, "texts-"+filepath.Base(j.Workspace))}
	if err := m.mounts(p); err != nil {
		return nil, err
	}
	argv := append([]string{l.peers["bwrap"].path, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
		"--unshare-cgroup", "--unshare-net", "--new-session", "--die-with-parent", "--cap-drop", "ALL"}, m.args...)
	argv = append(argv, "--chdir", j.Workspace, "--")
	return command{argv: append(argv, j.Argv...), env: p.Environ(), dir: j.Workspace}.runner(), nil
}

// A mounter turns the paths of a plan into arguments of bwrap.
type mounter struct {
	args  []string
	texts string // a folder for the content of generated files
	count int
}

func (m *mounter) add(words ...string) { m.args = append(m.args, words...) }

func (m *mounter) mounts(p *plan.Plan) error {
	lines := withPins(p)
	for _, e := range lines {
		if err := m.mount(e); err != nil {
			return err
		}
	}
	for _, e := range lines {
		if e.Content == plan.Empty && e.Kind == hostfs.Dir && e.Access != policy.Write && e.Path != "/" {
			m.add("--remount-ro", e.Path)
		}
	}
	return nil
}

// withPins adds the folders that cloche makes mounts of their own.
func withPins(p *plan.Plan) []plan.Path {
	lines := p.ByDepth()
	for _, dir := range p.Pins() {
		source, _ := p.HostPath(dir)
		lines = append(lines, plan.Path{Path: dir, Source: source, Kind: hostfs.Dir, Access: policy.Write})
	}
	slices.SortStableFunc(lines, func(a, b plan.Path) int { return depth(a.Path) - depth(b.Path) })
	return lines
}

func depth(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}

func (m *mounter) mount(e plan.Path) error {
	switch e.Content {
	case plan.Host:
		m.bind(e)
	case plan.Empty:
		m.empty(e)
	case plan.Proc:
		m.add("--proc", e.Path)
	case plan.Devices:
		m.add("--dev", e.Path)
	case plan.Text:
		return m.text(e)
	case plan.Link:
		m.add("--symlink", e.Target, e.Path)
	}
	return nil
}

func (m *mounter) bind(e plan.Path) {
	switch {
	case e.Kind == hostfs.Missing:
	case e.Access == policy.Write:
		m.add("--bind", e.Source, e.Path)
	default:
		m.add("--ro-bind", e.Source, e.Path)
	}
}

func (m *mounter) empty(e plan.Path) {
	switch {
	case e.Path == "/":
	case e.Kind != hostfs.Dir:
		m.add("--ro-bind", "/dev/null", e.Path)
	default:
		m.add("--tmpfs", e.Path)
	}
}

func (m *mounter) text(e plan.Path) error {
	if err := os.MkdirAll(m.texts, 0o755); err != nil {
		return err
	}
	m.count++
	file := filepath.Join(m.texts, fmt.Sprint(m.count))
	m.add("--ro-bind", file, e.Path)
	return os.WriteFile(file, []byte(e.Text), 0o644)
}
