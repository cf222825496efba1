package learn

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// form is a path of the host as a policy file writes it: relative to the file if
// that is in the workspace, below "~", or absolute.
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

// writable reports whether a policy file can hold a path so that it means this one
// and no other: a star would be a pattern, and there is no way to write one that is
// not. Of a path in the workspace or the home folder only the rest is written. An
// abstract socket is a name and no path.
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

// expressed widens a need to the folder around a name that cannot be written, or
// closes it where that would open too much.
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
