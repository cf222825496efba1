package sysprog

import (
	"encoding/binary"
	"fmt"

	"github.com/cloche-dev/cloche/policy"
)

// A sample is a whole sandbox as a program: the host read-only, its own /tmp
// and /proc, no capability, a filter, and an init from a descriptor.
type sample struct {
	Program
	uid, gid int
	// identity lets the parent map all ids; otherwise the child maps its own.
	identity bool
	// writable is bound read-write onto /mnt.
	writable string
	argv     []string
}

// sampleFlags are the namespaces of a sample.
const sampleFlags = NewUser | NewMount | NewPID | NewIPC | NewUTS | NewNetwork | NewCgroup

// The descriptors of the command, then those of the init.
var sampleFiles = []string{"standard input", "standard output", "standard error", "status", "lifeline", "init", "writable"}

func (s *sample) build() {
	files := make([]Arg, len(sampleFiles))
	for i, name := range sampleFiles {
		files[i] = s.AddFile(name)
	}
	s.For(builtin, "close what is not ours").CloseOthers()
	s.maps()
	s.mounts(files[6])
	s.For(builtin, "name the machine").Call("sethostname", Bytes([]byte("cloche"), ""), Const(6))
	s.For(builtin, "bring up the loopback interface").LoopbackUp()
	rest := s.For(builtin, "give the command its descriptors").Install(files[:5], files[5])
	s.For(builtin, "a session of its own").Setsid()
	s.restrict()
	b := s.For(policy.Origin{}, "start the init")
	b.CloexecFrom(5)
	b.Execveat(rest[0], s.argv...)
}

var builtin = policy.Origin{Source: "built in"}

func (s *sample) maps() {
	b := s.For(builtin, "map the user")
	if s.identity {
		b.SyncParent()
		return
	}
	b.WriteFile("/proc/self/setgroups", "deny")
	b.WriteFile("/proc/self/uid_map", fmt.Sprintf("%d %d 1", s.uid, s.uid))
	b.WriteFile("/proc/self/gid_map", fmt.Sprintf("%d %d 1", s.gid, s.gid))
}

func (s *sample) mounts(writable Arg) {
	root := s.For(policy.Origin{Layer: policy.LayerPreset, Source: "preset workspace", Line: 3}, "the host, read-only")
	root.MountSetattr(Cwd(), "/", AtRecursive, MountAttr{Propagation: MountPrivate})
	bind := s.For(policy.Origin{Layer: policy.LayerProject, Source: "policy.yaml", Line: 12}, "bind "+s.writable+" onto /mnt")
	source := bind.Openat2(Cwd(), s.writable, OpenPath|OpenDirectory, ResolveNoSymlinks)
	bind.SameFile(source, writable)

	tree := root.OpenTree(Cwd(), "/", OpenTreeClone|AtRecursive)
	root.MountSetattr(tree, "", AtEmptyPath|AtRecursive, MountAttr{Set: MountAttrReadOnly | MountAttrNoSuid})
	root.Attach(tree, Cwd(), "/tmp")
	root.Chdir("/tmp")

	bind.Attach(bind.OpenTree(source, "", OpenTreeClone|AtEmptyPath), Cwd(), "mnt")

	tmp := s.For(builtin, "a private /tmp")
	tmp.Attach(tmp.NewMount("tmpfs", MountAttrNoSuid|MountAttrNoDev, "size=1m", "mode=1777"), Cwd(), "tmp")
	proc := s.For(builtin, "its own /proc")
	proc.Attach(proc.NewMount("proc", MountAttrNoSuid|MountAttrNoDev|MountAttrNoExec), Cwd(), "proc")

	pivot := s.For(builtin, "leave the old root")
	pivot.PivotRoot(".", ".")
	pivot.Umount2(".", UmountDetach)
	pivot.Chdir("/")
}

func (s *sample) restrict() {
	s.For(builtin, "no new privileges").NoNewPrivs()
	caps := s.For(builtin, "drop all capabilities")
	caps.DropBounding(0)
	caps.ClearAmbient()
	caps.Capset(0, 0, 0)
	s.For(builtin, "filter system calls").Seccomp(refuseFilter(), 0)
}

// refuseFilter answers EPERM to personality, on both architectures, and lets
// everything else pass.
func refuseFilter() []byte {
	var out []byte
	for _, in := range []struct {
		code   uint16
		jt, jf uint8
		k      uint32
	}{
		{0x20, 0, 0, 4},           // load the architecture
		{0x15, 0, 2, 0xc000003e},  // amd64
		{0x20, 0, 0, 0},           // load the number
		{0x15, 2, 3, 135},         // personality
		{0x20, 0, 0, 0},           // load the number
		{0x15, 0, 1, 92},          // personality
		{0x06, 0, 0, 0x50000 | 1}, // EPERM
		{0x06, 0, 0, 0x7fff0000},  // allow
	} {
		out = binary.LittleEndian.AppendUint16(out, in.code)
		out = append(out, in.jt, in.jf)
		out = binary.LittleEndian.AppendUint32(out, in.k)
	}
	return out
}

// execve executes the file at a path, with the environment of Options.Env.
func execve(b Block, path string, argv ...string) {
	b.Call("execve", Str(path), vector(argv), environ())
}

// resetSignals gives every signal its default action and unblocks them all, for
// programs that do not do so themselves.
func resetSignals(b Block) {
	for signal := uint64(1); signal <= 64; signal++ {
		if signal != sigKill && signal != sigStop {
			b.Call("rt_sigaction", Const(signal), Bytes(make([]byte, 4*wordSize), "SIG_DFL"), null(), Const(sizeofSigset))
		}
	}
	b.Sigmask(0)
}

func nanosleep(b Block, nanoseconds uint64) {
	const second = 1_000_000_000
	data := binary.LittleEndian.AppendUint64(nil, nanoseconds/second)
	data = binary.LittleEndian.AppendUint64(data, nanoseconds%second)
	b.Call("clock_nanosleep", Named(1, "CLOCK_MONOTONIC"), Const(0), Bytes(data, "…"), null())
}
