package learn

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// form returns a path of the host as the policy file writes it. A path in the workspace
// is relative to the file if the file is in the workspace's top folder, and begins with
// urn:cloche:workspace otherwise. A path in the home begins with "~". All others are
// absolute.
func (f *File) form(p string) string {
	m := &f.Machine
	text := m.short(p)
	if m.inWorkspace(p) {
		text = "urn:cloche:workspace" + strings.TrimPrefix(p, m.Workspace)
		if f.Base == m.Workspace {
			text = "." + strings.TrimPrefix(p, m.Workspace)
		}
	}
	return pathx.Literal(text)
}

func (m *Machine) inWorkspace(p string) bool {
	return m.Workspace != "" && pathx.Within(m.Workspace, p)
}

// writable reports whether a policy file can contain a path so that the entry means
// this path and no other. A star, for example, would make it a pattern, and there is no
// way to write a plain one. For a path in the workspace or the home folder only the
// part below that folder is written, so only that part is checked. An abstract socket
// ("@name") is a name, not a path.
func (m *Machine) writable(p string) bool {
	rest := m.short(p)
	if m.inWorkspace(p) {
		rest = strings.TrimPrefix(p, m.Workspace)
	}
	if strings.HasPrefix(p, "@") {
		return utf8.ValidString(p) && strings.IndexFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(`*?[{\`, r) }
	return path.IsAbs(p) && p == path.Clean(p) && utf8.ValidString(rest) && strings.IndexFunc(rest, odd) < 0
}

// expressed handles a path whose name a policy file cannot contain: it widens the need
// to the folder around the name, or closes it if that would open too much.
func (m *Machine) expressed(n Need) Need {
	if n.Kind == Connect || n.Kind == Forward || n.Class == Closed || m.writable(n.Path) {
		return n
	}
	dir := path.Dir(n.Path)
	if n.Class == Sensitive || n.Kind == Socket || n.Missing || m.broad(dir) || m.system(dir) || !m.writable(dir) {
		n.Class, n.Why = Closed, "a policy file cannot hold this name"
		return n
	}
	n.Path = dir
	return n
}
