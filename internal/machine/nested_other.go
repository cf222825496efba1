//go:build !linux

package machine

// Nested reports whether this process is inside of a sandbox of cloche that
// shows its policy; none does so here.
func Nested() bool { return false }
