// Package cause defines the values of host.Probe.Cause: why a probe said no. Errors choose the
// right fix by them, and the audit log and the JSON of errors contain them.
package cause

// The causes. None means that the cause is not known.
const (
	None          = ""
	Missing       = "missing"        // the program does not exist
	UserNS        = "userns"         // user namespaces are denied, for an unknown reason
	UserNSSysctl  = "userns-sysctl"  // by a sysctl
	AppArmor      = "apparmor"       // by AppArmor's restriction
	Container     = "container"      // by the container around cloche
	Mount         = "mount"          // a mount was denied
	TooOld        = "too-old"        // the program or the kernel lacks something that is needed
	Untrusted     = "untrusted"      // commands or other users can change the program
	Nested        = "nested"         // this process is in a sandbox that allows no other one
	UnsupportedOS = "unsupported-os" // not on this operating system
)
