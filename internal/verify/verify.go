// Package verify tries the rules of a plan for real. A prober inside the sandbox
// (internal/prober) makes one attempt after the other and reports the result of each.
// Everything else happens outside: deciding what to try, checking the effect on the host,
// and the verdict.
//
// If an attempt has an effect on the host, the effect counts and not the prober's answer.
// Files that an attempt creates stay until the process outside has checked the host for
// them, and a connection counts where it arrives. So a prober that is wrong, or lies,
// cannot make a write look denied.
//
// No attempt changes an existing file. Files are opened for writing but never written or
// truncated, and new names are random. If a file can be moved away, which a working sandbox
// prevents, it is moved back at once. [Run.Close] removes everything that was created.
//
// # What is tried
//
//	rule                  tried inside                                  checked outside
//	hidden                read, list, write, create, move away          a file of that name on the host
//	read, protect         read, open for writing, create, move away     the same
//	write, persist, tmp   create a file                                 that it arrives where it should, or nowhere
//	binds, remap          read                                          that it is the same file
//	patterns              create a match in each writable folder,       the file on the host
//	                      read one that cloche made
//	folders around masks  rename them
//	network               connect and send to cloche's own listeners    what arrived
//	sockets               connect to each hidden or granted one         whether it answers outside
//	env                   the plan's variables, by salted hash
//	limits, privileges,   ask the kernel; calls whose arguments make    start time, shared memory, the mode of a file
//	calls, processes, ipc them fail harmlessly if nothing refuses them
//
// The limits on time, output and memory are enforced from outside, and trying them would
// mean using them up: they are listed as not testable. Rules that the backend declares as
// gaps are not tried in ways that could do harm. A gap excuses exactly the rule and the
// subject that it names.
package verify

import (
	"errors"

	"github.com/cloche-dev/cloche/policy"
)

// An Outcome is the result of trying a rule.
type Outcome string

// The outcomes.
const (
	Held        Outcome = "held"
	NotHeld     Outcome = "not held"
	Gap         Outcome = "gap"          // not held, and the backend declares it
	NotTestable Outcome = "not testable" // it could not be tried here
)

// A Finding is the result for one rule.
type Finding struct {
	// Rule names the rule in the words of a policy file, or of [backend.Gap].
	Rule string `json:"rule"`
	// Subject is the path, pattern, variable or limit that the rule is about.
	Subject string  `json:"subject,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Detail says what was tried and how it went, or why it was not.
	Detail string        `json:"detail"`
	Origin policy.Origin `json:"origin"`
}

// ErrUnconfined is returned for a launch without a sandbox.
var ErrUnconfined = errors.New("the command would run without a sandbox, so there is nothing to verify; choose another backend with --backend")
