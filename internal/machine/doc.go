// Package machine collects the facts about this machine for a [host.Snapshot]. It tries
// with live probes what works here, and remembers the answers.
package machine
