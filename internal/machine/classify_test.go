package machine

import (
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
)

// linuxHost is an ordinary user's machine where everything is allowed.
func linuxHost(change ...func(*host.Snapshot)) *host.Snapshot {
	s := &host.Snapshot{
		OS: "linux", UID: 1000,
		Bwrap: host.Bwrap{Path: "/usr/bin/bwrap", Version: "0.8.0"},
	}
	s.Namespaces.MaxUser, s.Namespaces.UnprivilegedClone, s.Namespaces.AppArmorRestrict = 60000, -1, -1
	for _, c := range change {
		c(s)
	}
	return s
}

func maxUser(n int64) func(*host.Snapshot) {
	return func(s *host.Snapshot) { s.Namespaces.MaxUser = n }
}
func cloneSysctl(n int64) func(*host.Snapshot) {
	return func(s *host.Snapshot) { s.Namespaces.UnprivilegedClone = n }
}
func appArmor(n int64) func(*host.Snapshot) {
	return func(s *host.Snapshot) { s.Namespaces.AppArmorRestrict = n }
}
func container(name string) func(*host.Snapshot) {
	return func(s *host.Snapshot) { s.Container = name }
}
func asUID(uid int) func(*host.Snapshot) { return func(s *host.Snapshot) { s.UID = uid } }
func setuid(s *host.Snapshot)            { s.Bwrap.Setuid = true }
func noBwrap(s *host.Snapshot)           { s.Bwrap = host.Bwrap{} }
func onDarwin(s *host.Snapshot)          { s.OS = "darwin" }

// A11 F2
func TestClassifyBwrap(t *testing.T) {
	const install = "sudo apt install bubblewrap"
	tests := []struct {
		name    string
		facts   facts
		outcome host.Outcome
		cause   string
		fix     string // a part of it
	}{
		{"works", facts{snapshot: linuxHost(), sandbox: worked}, host.Yes, cause.None, ""},
		{"works whatever else was tried", facts{snapshot: linuxHost(appArmor(1)), sandbox: worked, userNS: refused}, host.Yes, cause.None, ""},
		{"other system", facts{snapshot: linuxHost(onDarwin)}, host.No, cause.UnsupportedOS, ""},
		{"not found", facts{snapshot: linuxHost(noBwrap)}, host.No, cause.Missing, install},
		{"not executable", facts{snapshot: linuxHost(), sandbox: absent, detail: "permission denied"}, host.No, cause.Missing, install},
		{"too old", facts{snapshot: linuxHost(), lacks: []string{"json-status-fd"}}, host.No, cause.TooOld, "0.4.0 or later"},
		{"out of time", facts{snapshot: linuxHost(maxUser(0)), sandbox: unsure}, host.Unknown, cause.None, "try again"},
		{"nothing to run inside", facts{snapshot: linuxHost()}, host.Unknown, cause.None, "try again"},
		{"refused, and why not known", facts{snapshot: linuxHost(appArmor(1)), sandbox: refused, userNS: unsure}, host.Unknown, cause.None, "try again"},

		{"sysctl max", facts{snapshot: linuxHost(maxUser(0)), sandbox: refused, userNS: exhausted}, host.No, cause.UserNSSysctl, "sudo sysctl -w user.max_user_namespaces=15000"},
		{"limit used up", facts{snapshot: linuxHost(maxUser(5)), sandbox: refused, userNS: exhausted}, host.Unknown, cause.None, "try again"},
		{"outer limit", facts{snapshot: linuxHost(), nested: true, sandbox: refused, userNS: exhausted}, host.No, cause.UserNSSysctl, "outside"},
		{"sysctl of Debian", facts{snapshot: linuxHost(cloneSysctl(0)), sandbox: refused, userNS: refused}, host.No, cause.UserNSSysctl, "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		{"sysctl of Debian spares root", facts{snapshot: linuxHost(cloneSysctl(0), asUID(0)), sandbox: refused, userNS: refused}, host.No, cause.UserNS, ""},
		{"apparmor", facts{snapshot: linuxHost(appArmor(1)), sandbox: refused, userNS: refused}, host.No, cause.AppArmor, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"apparmor at the mount", facts{snapshot: linuxHost(appArmor(1)), sandbox: refused, userNS: worked, mounts: refused}, host.No, cause.AppArmor, "/etc/apparmor.d/bwrap"},
		{"apparmor spares root", facts{snapshot: linuxHost(appArmor(1), asUID(0)), sandbox: refused, userNS: refused}, host.No, cause.UserNS, ""},
		{"apparmor off", facts{snapshot: linuxHost(appArmor(0)), sandbox: refused, userNS: refused}, host.No, cause.UserNS, ""},
		{"docker", facts{snapshot: linuxHost(container("docker")), sandbox: refused, userNS: refused}, host.No, cause.Container, "docker run --security-opt seccomp=unconfined"},
		{"podman", facts{snapshot: linuxHost(container("podman")), sandbox: refused, userNS: refused}, host.No, cause.Container, "unmask=ALL"},
		{"kubernetes", facts{snapshot: linuxHost(container("kubernetes")), sandbox: refused, userNS: refused}, host.No, cause.Container, "procMount"},
		{"a sysctl beats the container", facts{snapshot: linuxHost(container("docker"), maxUser(0)), sandbox: refused, userNS: refused}, host.No, cause.UserNSSysctl, "max_user"},
		{"wsl refuses nothing", facts{snapshot: linuxHost(container("wsl")), sandbox: refused, userNS: refused}, host.No, cause.UserNS, ""},
		{"seccomp", facts{snapshot: linuxHost(), sandbox: refused, userNS: refused}, host.No, cause.UserNS, "RestrictNamespaces"},
		{"kernel without", facts{snapshot: linuxHost(), sandbox: refused, userNS: absent}, host.No, cause.UserNS, "CONFIG_USER_NS"},
		{"setuid without effect", facts{snapshot: linuxHost(setuid), noNewPrivs: true, sandbox: refused, userNS: refused}, host.No, cause.UserNS, "NoNewPrivileges"},

		{"mount", facts{snapshot: linuxHost(), sandbox: refused, userNS: worked, mounts: refused}, host.No, cause.Mount, "findmnt"},
		{"mount of /proc", facts{snapshot: linuxHost(), sandbox: refused, userNS: worked, mounts: worked}, host.No, cause.Mount, "findmnt"},
		{"covered /proc", facts{snapshot: linuxHost(), sandbox: refused, userNS: worked, mounts: worked, covered: []string{"/proc/keys", "/proc/acpi"}}, host.No, cause.Mount, "umount /proc/keys /proc/acpi"},
		{"covered /proc in docker", facts{snapshot: linuxHost(container("docker")), sandbox: refused, userNS: worked, mounts: worked, covered: []string{"/proc/keys"}}, host.No, cause.Mount, "systempaths=unconfined"},
		{"mount in docker", facts{snapshot: linuxHost(container("docker")), sandbox: refused, userNS: worked, mounts: worked}, host.No, cause.Mount, "systempaths=unconfined"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.install = install
			got := classifyBwrap(tt.facts)
			checkProbe(t, got, tt.outcome, tt.cause, tt.fix)
		})
	}
}

func TestClassifyUserNS(t *testing.T) {
	tests := []struct {
		name    string
		facts   facts
		outcome host.Outcome
		cause   string
		fix     string
	}{
		{"works", facts{snapshot: linuxHost(), userNS: worked, mounts: worked}, host.Yes, cause.None, ""},
		{"other system", facts{snapshot: linuxHost(onDarwin)}, host.No, cause.UnsupportedOS, ""},
		{"nothing to run", facts{snapshot: linuxHost(appArmor(1))}, host.Unknown, cause.None, "try again"},
		{"out of memory", facts{snapshot: linuxHost(), userNS: unsure}, host.Unknown, cause.None, "try again"},
		{"out of memory at the mount", facts{snapshot: linuxHost(), userNS: worked, mounts: unsure}, host.Unknown, cause.None, "try again"},
		{"mount refused", facts{snapshot: linuxHost(), userNS: worked, mounts: refused}, host.No, cause.Mount, ""},
		{"refused by apparmor", facts{snapshot: linuxHost(appArmor(1)), userNS: refused}, host.No, cause.AppArmor, "apparmor"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkProbe(t, classifyUserNS(tt.facts), tt.outcome, tt.cause, tt.fix)
		})
	}
}

func checkProbe(t *testing.T, got host.Probe, outcome host.Outcome, why, fix string) {
	t.Helper()
	if got.Outcome != outcome || got.Cause != why || !strings.Contains(got.Fix, fix) {
		t.Errorf("got %+v, want %v, cause %q, a fix with %q", got, outcome, why, fix)
	}
	if got.Outcome != host.Yes && got.Reason == "" {
		t.Error("there is no reason")
	}
	if got.Outcome == host.No && got.Fix == "" && why != cause.UnsupportedOS {
		t.Error("there is no fix")
	}
	if strings.ContainsAny(got.Reason+got.Fix, "\n") {
		t.Errorf("the reason or fix has more than one line: %+v", got)
	}
}

// The detail is shown, and what it says changes nothing.
func TestDetailIsNotJudged(t *testing.T) {
	f := facts{snapshot: linuxHost(), sandbox: refused, userNS: worked, mounts: worked}
	plain := classifyBwrap(f)
	f.detail = "bwrap: setting up uid map: Permission denied"
	told := classifyBwrap(f)
	if told.Cause != plain.Cause || told.Fix != plain.Fix {
		t.Errorf("the text changed the verdict from %+v to %+v", plain, told)
	}
	if !strings.Contains(told.Reason, f.detail) {
		t.Errorf("the reason %q leaves the detail out", told.Reason)
	}
}

func TestFixAppArmorQuotesNothing(t *testing.T) {
	for file, want := range map[string]string{
		"/opt/bwrap-0.9/bin/bwrap": "profile bwrap /opt/bwrap-0.9/bin/bwrap flags",
		"/opt/x'; rm -rf ~;'":      "profile bwrap /usr/bin/bwrap flags",
		"":                         "profile bwrap /usr/bin/bwrap flags",
	} {
		if got := fixAppArmor(file); !strings.Contains(got, want) {
			t.Errorf("for %q: %s", file, got)
		}
	}
}

func TestInstallHint(t *testing.T) {
	tests := []struct{ osRelease, want string }{
		{"ID=debian\n", "sudo apt install bubblewrap"},
		{"NAME=\"Linux Mint\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "sudo apt install bubblewrap"},
		{"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "sudo dnf install bubblewrap"},
		{"ID=arch\n", "sudo pacman -S bubblewrap"},
		{"ID=alpine\n", "sudo apk add bubblewrap"},
		{"ID='nixos'\n", "add pkgs.bubblewrap to environment.systemPackages"},
		{"VARIANT_ID=debian\nID=unheard-of\n", "install the package bubblewrap (apt, dnf, pacman, apk or zypper)"},
		{"", "install the package bubblewrap (apt, dnf, pacman, apk or zypper)"},
	}
	for _, tt := range tests {
		if got := installHint(tt.osRelease); got != tt.want {
			t.Errorf("installHint(%q) = %q, want %q", tt.osRelease, got, tt.want)
		}
	}
}
