package seatbelt

import "github.com/cloche-dev/cloche/policy"

// A serviceGroup is a set of system services that programs need for one purpose. A service
// acts outside of the sandbox for any caller, so each is a decision. These are never allowed:
// services that start programs (LaunchServices), have passwords (securityd), read and write
// settings (cfprefsd), the pasteboard, the window server, and notifications about file changes
// (FSEvents).
type serviceGroup struct {
	reason   string
	services []string
}

// baseServices are always needed, whatever the network is.
var baseServices = []serviceGroup{
	{"names of users and groups", []string{"com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership"}},
	{"changes of the time zone and the like", []string{"com.apple.system.notification_center"}},
	{"the places of temporary folders", []string{"com.apple.bsd.dirhelper"}},
	{"messages to the system's log", []string{"com.apple.logd", "com.apple.system.logger"}},
}

// networkServices are needed in network mode host.
var networkServices = []serviceGroup{
	{"which name servers and proxies there are", []string{"com.apple.SystemConfiguration.DNSConfiguration", "com.apple.SystemConfiguration.configd"}},
	{"names of hosts", []string{"com.apple.dnssd.service", "com.apple.mDNSResponder"}},
	{"certificates: it fetches what is missing of them itself", []string{"com.apple.trustd", "com.apple.trustd.agent"}},
}

// settings are the facts about the machine that programs read from the kernel. Other processes
// (kern.proc, kern.procargs2) are not among them.
var settings = []string{
	"kern.argmax", "kern.boottime", "kern.clockrate", "kern.hostname", "kern.maxfiles", "kern.maxfilesperproc", "kern.maxproc",
	"kern.ngroups", "kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osversion", "kern.secure_kernel",
	"kern.usrstack64", "kern.version", "kern.osvariant_status", "kern.willshutdown", "kern.iossupportversion", "kern.hv_vmm_present",
	"security.mac.lockdown_mode_state", "sysctl.proc_cputype", "sysctl.proc_native", "sysctl.proc_translated", "vm.loadavg", "vm.swapusage",
}

// settingGroups are prefixes of such settings: the hardware.
var settingGroups = []string{"hw.", "machdep.cpu.", "kern.tcsm_"}

// processes writes the rules for processes, facts about the machine and semaphores.
func (c *compiler) processes() {
	c.section("processes: those of this sandbox alone (some rules are not a part of default)")
	c.always("deny", "process-info*", "nvram*", "iokit-get-properties")
	c.always("allow", "process-fork")
	c.rule("allow", []string{"process-info*", "signal"}, "(target same-sandbox)")
	c.section("facts about the machine")
	var filters []string
	for _, s := range settings {
		filters = append(filters, "(sysctl-name "+quote(s)+")")
	}
	for _, s := range settingGroups {
		filters = append(filters, "(sysctl-name-prefix "+quote(s)+")")
	}
	c.rule("allow", []string{"sysctl-read"}, filters...)
	c.section("semaphores, which Python's processes share; they cannot be told apart")
	c.always("allow", "ipc-posix-sem")
	c.section("what tells processes that a setting changed, to be read")
	c.rule("allow", []string{"ipc-posix-shm-read*"}, `(ipc-posix-name "apple.shm.notification_center")`)
}

// services writes the rules for system services.
func (c *compiler) services() {
	groups := baseServices
	if c.plan.Network.Mode == policy.NetworkHost {
		groups = append(groups[:len(groups):len(groups)], networkServices...)
	}
	for _, g := range groups {
		c.section(g.reason)
		var filters []string
		for _, s := range g.services {
			filters = append(filters, "(global-name "+quote(s)+")")
		}
		c.rule("allow", []string{"mach-lookup"}, filters...)
	}
}

// devices writes the rules for harmless devices of /dev and for terminals. The command can
// open terminals that it makes itself, which the system marks. For other terminals only ioctl
// is allowed, for example to read the size of one that is a standard stream.
func (c *compiler) devices() {
	c.section("devices, and terminals that the command makes")
	c.rule("allow", []string{"file-read*", "file-write-data", "file-ioctl"},
		c.literal("/dev/null"), c.literal("/dev/zero"), c.literal("/dev/tty"), c.literal("/dev/ptmx"))
	c.rule("allow", []string{"file-read*"}, c.literal("/dev"), c.literal("/dev/random"), c.literal("/dev/urandom"),
		c.literal("/dev/stdin"), c.literal("/dev/stdout"), c.literal("/dev/stderr"))
	c.rule("allow", []string{"file-read*", "file-write-data"}, c.subpath("/dev/fd"))
	c.always("allow", "pseudo-tty")
	terminals := c.regex("^/dev/ttys[0-9]+$")
	c.rule("allow", []string{"file-read*", "file-write-data"}, all(terminals, `(extension "com.apple.sandbox.pty")`))
	c.rule("allow", []string{"file-ioctl"}, terminals)
}

// setID denies setting the setuid and setgid bits, so that no file is left behind that runs as
// another user. No other rule is about that operation alone.
func (c *compiler) setID() {
	c.section("no program that runs as somebody else is left behind")
	c.always("deny", "file-write-setugid")
}
