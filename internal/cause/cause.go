// Package cause has the values of host.Probe.Cause: why a probe said no. By them an error names
// the right fix, and the audit log and the JSON of errors have them as they are.
package cause

// The causes. None is an answer without a known cause.
const (
	None          = ""
	Missing       = "missing"        // the binary is not there
	UserNS        = "userns"         // user namespaces are refused, no finer reason known
	UserNSSysctl  = "userns-sysctl"  // by a sysctl
	AppArmor      = "apparmor"       // by AppArmor's restriction
	Container     = "container"      // by the container around us
	Mount         = "mount"          // a mount was refused
	TooOld        = "too-old"        // the binary or kernel lacks something needed
	Untrusted     = "untrusted"      // commands or other users can change the binary
	Nested        = "nested"         // this process is in a sandbox that allows no other
	UnsupportedOS = "unsupported-os" // not on this system
)
