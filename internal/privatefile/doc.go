// Package privatefile keeps what a process remembers for the next one of the same user, in
// files that nobody else can have written.
package privatefile
