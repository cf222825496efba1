package resolve

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// linuxPaths are readable with reads: system. Programs need them to start at all.
var linuxPaths = []string{
	"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys",
	// The stores of NixOS and Guix contain the system's programs.
	"/nix/store", "/gnu/store",
}

// systemSecrets are files below linuxPaths that only root can read. A command started by root
// must not read them either.
var systemSecrets = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private",
}

// kernelFolders are directories of /sys that describe the machine and that programs do not
// need: firmware tables, and energy meters, from which the activity of other processes can be
// inferred. rootKernelFolders are directories that only root can read: the kernel's debugging
// interfaces, its logs of earlier crashes, and loaded BPF programs.
var (
	kernelFolders     = []string{"/sys/firmware", "/sys/devices/virtual/powercap"}
	rootKernelFolders = []string{"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/config", "/sys/fs/bpf", "/sys/fs/pstore"}
)

// runtimeFiles are often links into /run, which is hidden: their targets are shown one by one.
var runtimeFiles = []string{"/etc/resolv.conf", "/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf", "/etc/hosts", "/etc/mtab"}

func builtin(why string) policy.Origin {
	return policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: " + why}
}

// baseline adds what every sandbox has. Every rule of the policy overrides it.
func (b *builder) baseline() {
	if b.snap.OS == darwin {
		b.darwinBaseline()
		return
	}
	b.root()
	b.special("/proc", plan.Proc, policy.Write, "own /proc")
	b.special("/dev", plan.Devices, policy.Write, "minimal /dev")
	b.sys()
	b.special("/run", plan.Empty, policy.Hidden, "sockets of the host are hidden")
	b.special("/var/run", plan.Empty, policy.Hidden, "sockets of the host are hidden")
	b.tmp()
	b.systemFile("/etc/ssh", policy.Hidden, "ssh refuses system files that an unknown user owns")
	for _, p := range systemSecrets {
		b.systemFile(p, policy.Hidden, "only root may read it")
	}
	// These come before the host's files that they replace.
	b.hosts()
	b.resolver()
	for _, p := range runtimeFiles {
		b.throughRun(p, "needed by the C library")
	}
	b.searchPath()
}

func (b *builder) root() {
	if b.policy.Reads == policy.ReadsHost {
		b.add(candidate{Path: plan.Path{Path: "/", Source: "/", Kind: hostfs.Dir, Access: policy.Read, Origin: plan.ReadsHost}})
		return
	}
	b.add(candidate{Path: plan.Path{Path: "/", Kind: hostfs.Dir, Access: policy.Hidden, Content: plan.Empty, Origin: builtin("reads: system")}})
	for _, p := range b.systemPaths() {
		b.systemFile(p, policy.Read, "reads: system")
	}
}

// systemFile adds a line for a path of the system, if it exists.
func (b *builder) systemFile(p string, a policy.Access, why string) {
	real, err := b.follow(p)
	if err != nil || real.missing() {
		return
	}
	line := plan.Path{Path: real.path, Source: real.path, Kind: real.info.Kind, Access: a, Origin: builtin(why)}
	if a == policy.Hidden {
		line.Content, line.Source = plan.Empty, ""
	}
	b.add(candidate{Path: line})
}

// special adds a folder that cloche provides in every sandbox. If the path is a link (/var/run
// is one on most systems), its target has a line of its own.
func (b *builder) special(p string, c plan.Content, a policy.Access, why string) {
	info, err := b.fs.Lstat(p)
	if err != nil && p == "/var/run" || err == nil && info.Kind != hostfs.Dir {
		return
	}
	kernel := c == plan.Proc || c == plan.Devices
	b.add(candidate{locked: kernel, Path: plan.Path{Path: p, Kind: hostfs.Dir, Access: a, Content: c, Origin: builtin(why)}})
}

// sys locks /sys as read-only. Root could write to files there, such as release_agent, that
// make the kernel run a program outside of any sandbox.
func (b *builder) sys() {
	if info, err := b.fs.Lstat("/sys"); err != nil || info.Kind != hostfs.Dir {
		return
	}
	b.add(candidate{locked: true, Path: plan.Path{Path: "/sys", Source: "/sys", Kind: hostfs.Dir, Access: policy.Read, Origin: builtin("the kernel's settings")}})
	hidden := kernelFolders
	if b.snap.UID == 0 {
		hidden = slices.Concat(kernelFolders, rootKernelFolders)
	}
	for _, p := range hidden {
		b.systemFile(p, policy.Hidden, "the kernel's own tables")
	}
}

// tmp adds the private or shared /tmp.
func (b *builder) tmp() {
	for _, p := range []string{"/tmp", "/var/tmp"} {
		real, err := b.follow(p)
		if err != nil || real.info.Kind != hostfs.Dir {
			continue
		}
		line := plan.Path{Path: real.path, Kind: hostfs.Dir, Access: policy.Write, Content: plan.Empty, Origin: builtin("private /tmp")}
		if b.policy.Tmp == policy.TmpShared {
			line.Content, line.Source, line.Origin = plan.Host, real.path, b.policy.TmpOrigin
		}
		b.add(candidate{Path: line})
	}
}

// throughRun shows the file that a link leads to, if it is in a hidden folder.
func (b *builder) throughRun(p, why string) {
	real, err := b.follow(p)
	if err != nil || real.missing() || len(real.links) == 0 || b.systemCovers(real.path) {
		return
	}
	b.add(candidate{Path: plan.Path{Path: real.path, Source: real.path, Kind: real.info.Kind, Access: policy.Read, Origin: builtin(why + ", by the link " + p)}})
}

// systemCovers reports whether the baseline shows a path anyway. The target of a link into
// /proc (/etc/mtab) is in the command's own /proc.
func (b *builder) systemCovers(p string) bool {
	if pathx.Within("/proc", p) || pathx.Within("/dev", p) {
		return true
	}
	if inAny(b.hiddenFolders(), p) {
		return false
	}
	return b.policy.Reads == policy.ReadsHost || inAny(b.systemPaths(), p)
}

// inAny reports whether a path lies in one of the folders.
func inAny(folders []string, p string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool { return pathx.Within(dir, p) })
}

// searchPath shows the folders of PATH that are links in /run, which is hidden: on NixOS and
// Guix /run/current-system is such a link.
func (b *builder) searchPath() {
	value, _ := b.getenv("PATH")
	for _, dir := range strings.Split(value, ":") {
		if !path.IsAbs(dir) || !pathx.Within("/run", path.Clean(dir)) {
			continue
		}
		b.throughRun(path.Clean(dir), "a folder of PATH")
	}
}

// ownFiles locks the files that cloche itself relies on. If a folder does not exist yet and
// the command could create it, cloche creates it first: otherwise the command could write
// cloche's configuration for the next run.
func (b *builder) ownFiles() {
	for _, p := range b.ownFolders() {
		real, err := b.follow(p)
		if err != nil || real.denied {
			continue
		}
		line := plan.Path{Path: real.path, Kind: hostfs.Dir, Content: plan.Empty, Access: policy.Hidden, Origin: builtin("cloche's own files")}
		if real.missing() {
			line.Create, line.Source = true, real.path
		}
		b.add(candidate{Path: line, locked: true, links: real.links})
	}
	b.lockFiles(b.req.PolicyFiles, "the policy in force")
	if slices.ContainsFunc(b.req.OwnPrograms, b.mayBeWritten) {
		b.lockFiles(b.req.OwnPrograms, "cloche's own program")
	}
}

// mayBeWritten reports whether a rule makes a folder around a path writable. For most programs
// no rule does, and this check is all that they cost.
func (b *builder) mayBeWritten(file string) bool {
	return b.anyCandidate(func(c *candidate) bool {
		return c.Access == policy.Write && c.Content == plan.Host && pathx.Within(c.Source, file)
	})
}

// lockFiles makes files read-only, whatever the rules say.
func (b *builder) lockFiles(files []string, why string) {
	for _, p := range files {
		real, err := b.follow(p)
		if err != nil || real.missing() {
			continue
		}
		b.add(candidate{locked: true, lowers: true, links: real.links, Path: plan.Path{Path: real.path, Source: real.path, Kind: real.info.Kind, Access: policy.Read, Protect: true, Origin: builtin(why)}})
	}
}

// ownFolders returns the folders with cloche's own files: those of this run, and those that a
// run with another HOME or without the XDG variables would use. A command that could write
// there would choose the policy of the next run.
func (b *builder) ownFolders() []string {
	d := b.snap.Dirs
	folders := []string{d.Config, d.Data, d.State, d.Cache}
	for _, home := range append([]string{b.snap.Home}, b.snap.Homes...) {
		for _, usual := range []string{".config/cloche", ".local/share/cloche", ".local/state/cloche", ".cache/cloche"} {
			folders = append(folders, path.Join(home, usual))
		}
	}
	slices.Sort(folders)
	return slices.DeleteFunc(slices.Compact(folders), func(p string) bool { return !path.IsAbs(p) })
}
