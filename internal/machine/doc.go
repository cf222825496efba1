// Package machine looks at this machine: it gathers the facts of a [host.Snapshot],
// tries by live probes what works here, and remembers the answers.
package machine
