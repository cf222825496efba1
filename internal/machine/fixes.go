package machine

import "strings"

// fixAppArmor prefers the profile that opens user namespaces for bwrap alone.
func fixAppArmor(bwrap string) string {
	if bwrap == "" || strings.Trim(bwrap, plainPath) != "" {
		bwrap = "/usr/bin/bwrap"
	}
	return "let AppArmor allow it for bwrap: " +
		`printf 'abi <abi/4.0>,\nprofile bwrap ` + bwrap + ` flags=(unconfined) {\n  userns,\n}\n'` +
		" | sudo tee /etc/apparmor.d/bwrap && sudo systemctl reload apparmor" +
		"; or for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
}

// plainPath are the characters that mean nothing to a shell or to AppArmor; a
// path with others is not put into a command that people paste.
const plainPath = "/._-+0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// fixContainer says how a container has to be started for sandboxes in it.
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

// installHint returns the command that installs bubblewrap on the system that
// an os-release text describes.
func installHint(osRelease string) string {
	ids := osReleaseIDs(osRelease)
	for _, id := range ids {
		for _, in := range installers {
			for known := range strings.FieldsSeq(in.ids) {
				if known == id {
					return in.command
				}
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
