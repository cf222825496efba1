package seccomp

import "testing"

// N1: which opens for reading are asked about, by the group, on both
// architectures. The runtime of Go is distinguished from C libraries by how it writes
// AT_FDCWD.
func TestReadGroups(t *testing.T) {
	const (
		fromC, fromGo  = uint64(0xffffff9c), ^uint64(99)
		write, cloexec = 1, 0x80000
	)
	for _, arch := range []string{"amd64", "arm64"} {
		m, err := machineFor(arch)
		if err != nil {
			t.Fatal(err)
		}
		number, _ := m.number("openat")
		for name, p := range map[string]struct {
			dir                     uint64
			flags                   uint32
			plain, all, every, none bool
		}{
			"from C":          {fromC, cloexec, true, true, true, false},
			"from Go":         {fromGo, cloexec, false, true, true, false},
			"in a folder":     {7, 0, true, true, true, false},
			"following none":  {fromC, m.openNoFollow, false, true, true, false},
			"a folder":        {fromC, m.openDirectory, false, true, true, false},
			"a place":         {fromC, openPath, false, false, false, false},
			"writing":         {fromC, write, false, false, false, false},
			"writing, from C": {fromC, write | cloexec, false, false, false, false},
		} {
			for group, want := range map[Notify]bool{NotifyPlainReads: p.plain, NotifyReads: p.all, NotifyEveryRead: p.every, NotifyExec: p.none} {
				program, err := Program(Options{Arch: arch, Notify: group})
				if err != nil {
					t.Fatal(err)
				}
				v, _, err := evaluate(program, data{number: uint32(number), arch: m.audit, args: [6]uint64{p.dir, 1, uint64(p.flags)}})
				if err != nil || (v == retAsk) != want {
					t.Errorf("%s, group %d, %s: 0x%x %v, asked about: want %v", arch, group, name, v, err, want)
				}
			}
		}
	}
}
