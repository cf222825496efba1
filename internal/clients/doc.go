// Package clients has no code of its own: its tests run programs of the field
// (curl, git, ssh, Node, Python, Go, gRPC, QUIC, dig, ping) in a sandbox with a
// network, on a machine with an internet of its own (package testnet).
package clients
