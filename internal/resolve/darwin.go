package resolve

import (
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// darwin is the name of macOS in a snapshot.
const darwin = "darwin"

// darwinPaths are readable on macOS with reads: system. The shared library cache is on a
// separate volume. Compilers and Homebrew are not part of the system, but scripts expect them.
var darwinPaths = []string{
	"/usr", "/bin", "/sbin", "/etc", "/opt/homebrew", "/System/Library", "/System/Cryptexes", "/System/Volumes/Preboot/Cryptexes",
	"/Library/Apple", "/Library/Developer", "/Library/Frameworks", "/Applications/Xcode.app",
	"/var/db/dyld", "/var/db/timezone", "/var/db/xcode_select_link", "/var/select", "/nix/store",
}

// darwinHidden are folders of the system that are hidden completely: sockets of the host, and
// the temporary files and caches of all programs.
var darwinHidden = []struct{ path, why string }{
	{"/var/run", "sockets of the host are hidden"},
	{"/var/folders", "temporary files and caches of other programs"},
	{"/var/db/dslocal", "only root may read it"},
	{"/var/root", "only root may read it"},
	{"/etc/master.passwd", "only root may read it"},
	{"/etc/sudoers", "only root may read it"},
}

// darwinBaseline is the baseline for macOS, which has no /proc, /sys and /run.
func (b *builder) darwinBaseline() {
	b.root()
	b.special("/dev", plan.Devices, policy.Write, "minimal /dev")
	b.tmp()
	for _, h := range darwinHidden {
		b.systemFile(h.path, policy.Hidden, h.why)
	}
	b.userTmp()
	b.hosts()
	b.resolver()
	for _, p := range runtimeFiles {
		b.throughRun(p, "needed by the C library")
	}
}

// userTmp shows the caller's temporary folder if the policy shares /tmp: on macOS TMPDIR names
// a folder for each user.
func (b *builder) userTmp() {
	dir, ok := b.getenv("TMPDIR")
	if !ok || b.policy.Tmp != policy.TmpShared {
		return
	}
	if real, err := b.follow(dir); err == nil && real.info.Kind == hostfs.Dir {
		b.add(candidate{Path: plan.Path{Path: real.path, Source: real.path, Kind: hostfs.Dir, Access: policy.Write, Origin: b.policy.TmpOrigin}})
	}
}

// systemPaths returns the paths that programs of this system need to start at all.
func (b *builder) systemPaths() []string {
	if b.snap.OS == darwin {
		return darwinPaths
	}
	return linuxPaths
}

// hiddenFolders returns hidden folders whose files may have to be shown because links lead to
// them.
func (b *builder) hiddenFolders() []string {
	if b.snap.OS == darwin {
		return []string{"/private/var/run", "/private/tmp", "/private/var/tmp", "/private/var/folders"}
	}
	return []string{"/run", "/tmp", "/var/run", "/var/tmp"}
}
