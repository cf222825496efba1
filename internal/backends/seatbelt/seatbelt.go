// Package seatbelt enforces plans on macOS, with the kernel's sandbox, Seatbelt. Compiling is
// pure: a plan becomes a profile in the Sandbox Profile Language. `/usr/bin/sandbox-exec`
// applies the profile to a new process and executes the command. The package builds
// everywhere, so that the meaning of profiles is tested everywhere; only running one needs
// macOS.
//
// # What is different without mounts
//
// A profile decides by the name of a file, at each use of it. So patterns and paths that do
// not exist yet need no broker. But nothing can be shown at another path or made private, and
// moving a folder gives its files names to which other rules apply. So
//
//   - folders between a writable one and a stricter path in it can be neither moved,
//     removed nor created: see pins.go;
//   - rules that deny apply to every spelling of a name that macOS treats as the
//     same, rules that allow only to the exact one: see spelling.go;
//   - /tmp is closed, and TMPDIR names a folder that is made for the run;
//   - hard links are denied, because no rule would apply to the second name of a
//     file.
//
// # The order of rules
//
// The last rule that matches decides. It is not documented whether a rule for one operation
// (file-write-unlink) overrides a later one for a group (file-write*). Profiles are written so
// that it does not matter: rules for single operations come after those for groups.
//
// # How a profile is written
//
// Lines are ordered by depth. The patterns that apply in a line come right after it, and a
// deeper line gives back what they deny, as in judge.Files.
//
//   - Spellings: the disk ignores case and Unicode form, a profile compares bytes. A
//     rule that denies is a regular expression for all spellings; one that allows is
//     exact.
//   - Moves: moving a folder gives its files names with other rules. Folders on the
//     way to something stricter are pinned: file-write-unlink and file-write-create
//     are denied for them.
//   - Exemptions: a pattern does not apply below node_modules. One rule is for paths
//     without such a folder, a second for such folders in what the pattern matches.
//     If a match is between two of them, a profile is stricter than the plan, never
//     looser.
//
// The tests evaluate profiles in two ways, by order alone and with rules for
// single operations first. Random plans and paths are compared with judge.Files in
// both.
//
// The supervisor makes the private temporary folder (Launch.PrivateTmp), and a parameter names
// it, so that compiling stays pure. A byte on a pipe says that the sandbox was made
// (builtin.Ready).
package seatbelt

import (
	"errors"
	"fmt"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/backends/program"
	"github.com/cloche-dev/cloche/internal/builtin"
	"github.com/cloche-dev/cloche/plan"
)

// Name is the backend's name in policies.
const Name = "seatbelt"

// launcher is the program that applies a profile to a process. It is a part of macOS on its
// sealed volume, and ignores the variables of dyld.
const launcher = "/usr/bin/sandbox-exec"

// maxProfile limits the size of a profile, which is an argument: macOS accepts a megabyte of
// arguments and variables together.
const maxProfile = 512 << 10

// Backend is the Seatbelt backend.
type Backend struct{ probe program.Prober }

// New returns the backend. If probe is nil, the outcome in the snapshot is used.
func New(probe program.Prober) *Backend { return &Backend{probe} }

// Name implements backend.Backend.
func (*Backend) Name() string { return Name }

// Mounts implements backend.Backend.
func (*Backend) Mounts() bool { return false }

// Available implements backend.Backend.
func (b *Backend) Available(s *host.Snapshot) error {
	p := s.Seatbelt
	if b.probe != nil {
		p = b.probe(s)
	}
	return program.Available(Name, p)
}

// Compile implements backend.Backend.
func (*Backend) Compile(p *plan.Plan, s *host.Snapshot) (*backend.Launch, error) {
	if p.Command == nil {
		return nil, fmt.Errorf("backend %s: the plan has no command", Name)
	}
	if p.Privileged {
		return nil, fmt.Errorf("backend %s: allow_privileged has no meaning on macOS: a profile gives no privilege", Name)
	}
	text, gaps, err := Profile(p)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", Name, err)
	}
	l := &backend.Launch{
		Backend: Name, Path: launcher, Dir: program.Unmap(p, p.Command.Dir), Env: environ(p, s), FirstFD: 3 + p.Command.ExtraFiles, Confined: true,
		Files: []backend.File{{Kind: builtin.Ready}}, Gaps: gaps,
		Extras: builtin.Extras{PrivateTmp: tmpParam, Profile: text},
	}
	l.Argv = arguments(p, text, l.FirstFD)
	for i := range p.Paths {
		// Persisted folders are a gap; cloche's own folders are denied by their names.
		if e := &p.Paths[i]; e.Content == plan.Host && !e.Persisted() {
			l.CreateDirs = append(l.CreateDirs, e.MadeFirst()...)
		}
	}
	return l, nil
}

// Profile returns the profile of a plan, and the parts of the plan that it does not enforce.
func Profile(p *plan.Plan) (string, []backend.Gap, error) {
	p = atHome(p)
	c := &compiler{plan: p, lines: linesOf(p)}
	c.compile()
	text := c.out.String()
	switch {
	case c.err != nil:
		return "", nil, c.err
	case len(text) > maxProfile:
		return "", nil, fmt.Errorf("the profile has %d bytes, and macOS takes %d: use fewer rules about paths", len(text), maxProfile)
	}
	return text, gapsOf(p, c.lines), nil
}

var errNUL = errors.New("a path with a NUL in it cannot be in a profile")
