package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
)

// A trial is the outcome of one operation that a probe tried.
type trial int

const (
	untried   trial = iota
	worked          // it can be done
	refused         // the kernel said no
	exhausted       // the limit on user namespaces is reached
	absent          // the kernel does not have it
	unsure          // a timeout, or too little memory, processes or descriptors: says nothing about the machine's configuration
)

// facts are everything that a verdict is based on.
type facts struct {
	snapshot *host.Snapshot
	// nested says that the caller's user namespace does not map all ids. Then limits of an
	// outer namespace apply, which cannot be read from here.
	nested bool
	// noNewPrivs says that setuid programs gain no privileges.
	noNewPrivs bool
	// userNS is the trial to make a user namespace and use a capability in it. mounts is
	// the trial to make a mount namespace in that and change a mount.
	userNS, mounts trial
	// sandbox is the trial to make a sandbox with bwrap.
	sandbox trial
	// lacks are the options that cloche needs and that this bwrap does not have.
	lacks []string
	// covered are the paths in /proc that another mount covers.
	covered []string
	// detail is the error text of a program. It is shown to the user and never used for the
	// verdict.
	detail string
	// install is how bubblewrap is installed here.
	install string
}

// factsOf returns the facts that are known before a probe tries anything.
func factsOf(s *host.Snapshot) facts {
	own := *s
	own.Container = detectContainer(os.ReadFile, s.Getenv, s.Kernel)
	return facts{snapshot: &own, covered: coveredInProc(), install: installHint(readOSRelease(os.ReadFile))}
}

// classifyUserNS returns whether user namespaces can be made and used.
func classifyUserNS(f facts) host.Probe {
	if f.snapshot.OS != "linux" {
		return unsupported("user namespaces", f.snapshot.OS)
	}
	switch {
	case f.userNS == worked && f.mounts == worked:
		return host.Probe{Outcome: host.Yes}
	case f.userNS == untried:
		return inconclusive("no program to try a user namespace with was found", f.detail)
	case f.userNS == unsure, f.userNS == worked && (f.mounts == unsure || f.mounts == untried):
		return inconclusive("the trial of a user namespace did not finish", f.detail)
	case f.userNS == worked:
		return f.mountRefused("a user namespace can be made, but mounting in it is refused")
	default:
		return f.userNSRefused()
	}
}

// classifyBwrap returns whether bwrap can make sandboxes.
func classifyBwrap(f facts) host.Probe {
	b := f.snapshot.Bwrap
	switch {
	case f.snapshot.OS != "linux":
		return unsupported("bubblewrap", f.snapshot.OS)
	case b.Path == "":
		return no(cause.Missing, "bwrap was not found in PATH or the system folders", f.install)
	case f.sandbox == absent:
		return no(cause.Missing, withDetail(b.Path+" cannot be executed", f.detail), f.install)
	case f.sandbox == worked:
		return host.Probe{Outcome: host.Yes}
	case f.sandbox == unsure:
		return inconclusive("the trial of "+b.Path+" did not finish", f.detail)
	case len(f.lacks) > 0:
		return no(cause.TooOld,
			fmt.Sprintf("%s (version %s) lacks --%s", b.Path, cmp.Or(b.Version, "unknown"), strings.Join(f.lacks, ", --")),
			"install bubblewrap 0.4.0 or later: "+f.install)
	case f.sandbox == untried:
		return inconclusive("no program to try "+b.Path+" with was found", f.detail)
	default:
		return f.sandboxRefused()
	}
}

// sandboxRefused finds out why bwrap made no sandbox, from what else works and does
// not.
func (f facts) sandboxRefused() host.Probe {
	if f.snapshot.Bwrap.Setuid && f.noNewPrivs {
		return no(cause.UserNS, withDetail("bwrap is setuid root, which has no effect here: the no_new_privs flag is set", f.detail),
			"start cloche outside of the sandbox or service that sets the flag (systemd: NoNewPrivileges=no)")
	}
	switch f.userNS {
	case unsure, untried:
		return inconclusive("bwrap made no sandbox, and why could not be found out", f.detail)
	case worked:
		return f.mountRefused("bwrap can use a user namespace, but a mount that a sandbox needs is refused")
	default:
		return f.userNSRefused()
	}
}

// userNSRefused finds out what refuses user namespaces. It checks the most certain
// cause first: the value of a sysctl is better than a guess because of a container.
func (f facts) userNSRefused() host.Probe {
	ns := f.snapshot.Namespaces
	ordinary := f.snapshot.UID != 0
	switch {
	case ns.MaxUser == 0:
		return no(cause.UserNSSysctl, f.because("user namespaces are switched off: user.max_user_namespaces is 0"),
			"sudo sysctl -w user.max_user_namespaces=15000")
	case f.userNS == exhausted && f.nested:
		return no(cause.UserNSSysctl, f.because("user namespaces are limited by an outer user namespace"),
			"start cloche outside of the sandbox around it")
	case f.userNS == exhausted:
		return inconclusive(fmt.Sprintf("all of the %d user namespaces that user.max_user_namespaces allows are in use", ns.MaxUser), f.detail)
	case ordinary && ns.UnprivilegedClone == 0:
		return no(cause.UserNSSysctl, f.because("user namespaces are for root only: kernel.unprivileged_userns_clone is 0"),
			"sudo sysctl -w kernel.unprivileged_userns_clone=1")
	case ordinary && ns.AppArmorRestrict > 0:
		return no(cause.AppArmor, f.because("AppArmor refuses unprivileged user namespaces: kernel.apparmor_restrict_unprivileged_userns is 1"), fixAppArmor(f.snapshot.Bwrap.Path))
	case inContainer(f.snapshot):
		return no(cause.Container, f.because("the container ("+f.snapshot.Container+") refuses user namespaces"),
			fixContainer(f.snapshot.Container))
	case f.userNS == absent:
		return no(cause.UserNS, f.because("the kernel has no user namespaces"), "use a kernel built with CONFIG_USER_NS=y")
	default:
		return no(cause.UserNS, f.because("user namespaces are refused, as by a seccomp filter, a chroot or a security module around cloche"),
			"start cloche outside of what confines it (systemd: RestrictNamespaces=no), or ask `dmesg` and the audit log what refused it")
	}
}

// mountRefused is the verdict for a machine where user namespaces work and a mount is
// refused.
func (f facts) mountRefused(reason string) host.Probe {
	if len(f.covered) > 0 {
		return f.procRefused(reason)
	}
	if inContainer(f.snapshot) {
		return no(cause.Mount, f.because(reason+" by the container ("+f.snapshot.Container+"), as where parts of its /proc are covered"),
			fixContainer(f.snapshot.Container))
	}
	if f.snapshot.UID != 0 && f.snapshot.Namespaces.AppArmorRestrict > 0 {
		return no(cause.AppArmor, f.because(reason+" by AppArmor: kernel.apparmor_restrict_unprivileged_userns is 1"), fixAppArmor(f.snapshot.Bwrap.Path))
	}
	return no(cause.Mount, f.because(reason),
		"look for what refused it in `dmesg` and the audit log; a new /proc is refused where the host's is partly covered (see `findmnt -R /proc`)")
}

// procRefused is the verdict for a machine where a part of /proc is covered by another mount.
// The kernel then refuses to mount a new /proc, in which the covered files would be visible.
func (f facts) procRefused(reason string) host.Probe {
	const some = 3
	names := strings.Join(f.covered[:min(some, len(f.covered))], ", ")
	if len(f.covered) > some {
		names += ", …"
	}
	fix := "start cloche outside of what covers them; or uncover them, if you mounted them: sudo umount " + strings.Join(f.covered[:min(some, len(f.covered))], " ")
	by := ""
	if inContainer(f.snapshot) {
		by, fix = " by the container ("+f.snapshot.Container+")", fixContainer(f.snapshot.Container)
	}
	return no(cause.Mount, f.because(reason+": the kernel allows no new /proc while parts of the one here are covered"+by+": "+names), fix)
}

// MountRefused returns why a mount that a sandbox needs was refused, on a machine where
// user namespaces work. detail is the error of the call.
func MountRefused(s *host.Snapshot, detail string) host.Probe {
	f := factsOf(s)
	f.detail = detail
	return f.mountRefused("a mount that a sandbox needs is refused")
}

func (f facts) because(reason string) string { return withDetail(reason, f.detail) }

// inContainer does not count WSL, which is a virtual machine and refuses nothing.
func inContainer(s *host.Snapshot) bool { return s.Container != "" && s.Container != "wsl" }

func no(cause string, reason, fix string) host.Probe {
	return host.Probe{Outcome: host.No, Cause: cause, Reason: reason, Fix: fix}
}

func inconclusive(reason, detail string) host.Probe {
	return host.Probe{Outcome: host.Unknown, Reason: withDetail(reason, detail), Fix: "try again"}
}

func unsupported(what, os string) host.Probe {
	return no(cause.UnsupportedOS, what+" needs Linux, and this is "+os, "")
}

func withDetail(reason, detail string) string {
	if detail == "" {
		return reason
	}
	return reason + " (" + detail + ")"
}

// fixAppArmor prefers a profile that allows user namespaces for bwrap alone.
func fixAppArmor(bwrap string) string {
	if bwrap == "" || strings.Trim(bwrap, plainPath) != "" {
		bwrap = "/usr/bin/bwrap"
	}
	return "let AppArmor allow it for bwrap: " +
		`printf 'abi <abi/4.0>,\nprofile bwrap ` + bwrap + ` flags=(unconfined) {\n  userns,\n}\n'` +
		" | sudo tee /etc/apparmor.d/bwrap && sudo systemctl reload apparmor" +
		"; or for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
}

// plainPath has the characters that mean nothing to a shell or to AppArmor. A path with
// other characters is not put into a command that people paste.
const plainPath = "/._-+0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// fixContainer says how to start a container so that sandboxes work in it.
func fixContainer(name string) string {
	switch name {
	case "docker":
		return "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined …"
	case "podman":
		return "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL --security-opt label=disable …"
	case "kubernetes":
		return "in the pod's securityContext set seccompProfile.type and appArmorProfile.type to Unconfined, and procMount to Unmasked (with hostUsers: false)"
	case "lxc", "lxc-libvirt", "incus", "lxd":
		return "lxc config set CONTAINER security.nesting=true && lxc restart CONTAINER"
	case "flatpak":
		return "start cloche outside of Flatpak: flatpak-spawn --host cloche …"
	default:
		return "start the container with user namespaces and mounts allowed by its seccomp and security-module profile, and nothing covered in /proc"
	}
}

// installers are the commands that install bubblewrap, by the ID or ID_LIKE of
// os-release.
var installers = []struct{ ids, command string }{
	{"debian ubuntu", "sudo apt install bubblewrap"},
	{"fedora rhel centos", "sudo dnf install bubblewrap"},
	{"arch", "sudo pacman -S bubblewrap"},
	{"alpine", "sudo apk add bubblewrap"},
	{"suse opensuse sles", "sudo zypper install bubblewrap"},
	{"gentoo", "sudo emerge sys-apps/bubblewrap"},
	{"void", "sudo xbps-install bubblewrap"},
	{"nixos", "add pkgs.bubblewrap to environment.systemPackages"},
	{"guix", "guix install bubblewrap"},
}

// installHint returns the command that installs bubblewrap on the system that an
// os-release file describes.
func installHint(osRelease string) string {
	for _, id := range osReleaseIDs(osRelease) {
		for _, in := range installers {
			if slices.Contains(strings.Fields(in.ids), id) {
				return in.command
			}
		}
	}
	return "install the package bubblewrap (apt, dnf, pacman, apk or zypper)"
}

// osReleaseIDs returns ID and then the words of ID_LIKE.
func osReleaseIDs(text string) []string {
	var id, like []string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		words := strings.Fields(strings.Trim(value, `"'`))
		switch name {
		case "ID":
			id = words
		case "ID_LIKE":
			like = words
		}
	}
	return append(id, like...)
}

// A reader reads a whole file of the host. Tests replace it.
type reader func(path string) ([]byte, error)

// containerFiles are files that container runtimes create in a container, with the name of
// the runtime. A file without a name contains the name.
var containerFiles = []struct{ file, name string }{
	{"/.flatpak-info", "flatpak"},
	{"/run/.containerenv", "podman"},
	{"/run/systemd/container", ""},
	{"/.dockerenv", "docker"},
}

// cgroupHints are parts of the control group path of a container's first process. They
// are visible if the container has no cgroup namespace of its own.
var cgroupHints = []struct{ part, name string }{
	{"/kubepods", "kubernetes"},
	{"/docker", "docker"},
	{"/libpod", "podman"},
	{"/lxc", "lxc"},
	{"/garden", "garden"},
	{"/containerd", "containerd"},
	{"/machine.slice/machine-", "systemd-nspawn"},
}

// detectContainer returns the name of the container or subsystem around this process,
// or "". It reads only what runtimes leave for that purpose. The answer changes the
// text of a fix and nothing else.
func detectContainer(read reader, getenv func(string) (string, bool), kernel string) string {
	if v, _ := getenv("container"); v != "" {
		return v // the interface of systemd; podman, lxc and nspawn set it
	}
	for _, f := range containerFiles {
		text, err := read(f.file)
		if name := cmp.Or(f.name, string(bytes.TrimSpace(text))); err == nil && name != "" {
			return name
		}
	}
	// The first process of the pid namespace. Only root can read its environment.
	environ, _ := read("/proc/1/environ")
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte("container=")); ok && len(v) > 0 {
			return string(v)
		}
	}
	group, _ := read("/proc/1/cgroup")
	for _, h := range cgroupHints {
		if bytes.Contains(group, []byte(h.part)) {
			return h.name
		}
	}
	if v, _ := getenv("KUBERNETES_SERVICE_HOST"); v != "" {
		return "kubernetes"
	}
	if k := strings.ToLower(kernel); strings.Contains(k, "microsoft") || strings.Contains(k, "-wsl") {
		return "wsl"
	}
	return ""
}
