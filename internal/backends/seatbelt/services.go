package seatbelt

import "github.com/cloche-dev/cloche/policy"

// A service group is the services of the system that programs need for one thing.
// A service acts for whoever asks it, outside of the sandbox: each is a decision.
// Never among them: what starts programs (LaunchServices), holds passwords
// (securityd), reads and writes settings (cfprefsd), the pasteboard, the window
// server, and what tells of changes to files (FSEvents).
type serviceGroup struct {
	reason   string
	services []string
}

// always needed, whatever the network.
var baseServices = []serviceGroup{
	{"names of users and groups", []string{"com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership"}},
	{"changes of the time zone and the like", []string{"com.apple.system.notification_center"}},
	{"the places of temporary folders", []string{"com.apple.bsd.dirhelper"}},
	{"messages to the system's log", []string{"com.apple.logd", "com.apple.system.logger"}},
}

// needed where the network is the host's.
var networkServices = []serviceGroup{
	{"which name servers and proxies there are", []string{"com.apple.SystemConfiguration.DNSConfiguration", "com.apple.SystemConfiguration.configd"}},
	{"names of hosts", []string{"com.apple.dnssd.service", "com.apple.mDNSResponder"}},
	{"certificates: it fetches what is missing of them itself", []string{"com.apple.trustd", "com.apple.trustd.agent"}},
}

// settings are what programs ask of the kernel about the machine. Other processes
// (kern.proc, kern.procargs2) are not among them.
var settings = []string{
	"kern.argmax", "kern.boottime", "kern.clockrate", "kern.hostname", "kern.maxfiles", "kern.maxfilesperproc", "kern.maxproc",
	"kern.ngroups", "kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osversion", "kern.secure_kernel",
	"kern.usrstack64", "kern.version", "kern.osvariant_status", "kern.willshutdown", "kern.iossupportversion", "kern.hv_vmm_present",
	"security.mac.lockdown_mode_state", "sysctl.proc_cputype", "sysctl.proc_native", "sysctl.proc_translated", "vm.loadavg", "vm.swapusage",
}

// settingGroups are whole families of them: the hardware.
var settingGroups = []string{"hw.", "machdep.cpu.", "kern.tcsm_"}

// processes writes what programs may do with each other and ask the kernel.
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

// services writes the services that may be asked.
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

// devices writes the devices of /dev that are harmless, and terminals: those that
// the command makes itself, which the system marks, to be opened, and others to
// be asked for their size only where they are its standard streams.
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

// setID denies the bits by which a file that is left behind would run as another
// user. No other rule is about that operation alone.
func (c *compiler) setID() {
	c.section("no program that runs as somebody else is left behind")
	c.always("deny", "file-write-setugid")
}
