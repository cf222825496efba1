//go:build amd64 || arm64

package sysprog

import _ "unsafe" // for go:linkname

// These are the hooks that package syscall itself calls around a system call. The runtime
// keeps them available to packages outside of the standard library (see go.dev/issue/67401).

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// spawn blocks all signals, clones, and lets the child run the records. In the parent it
// returns when the child has executed a program or has ended, with the signal mask restored.
//
// It is one piece of assembly because no Go code may run in between: neither in the child, nor
// in the parent while signals are blocked on its thread.
//
//go:noescape
func spawn(c *control)

// launch runs the child with the P given back, as for a blocking system call: a stop of the
// world does not wait for this thread, and other goroutines, including that of
// Options.SyncParent, get the P at once.
//
// Meanwhile the garbage collector sees the stack up to this frame, so this function must not
// be split from it and must not grow it.
//
//go:nosplit
//go:norace
func launch(c *control) {
	entersyscallblock()
	spawn(c)
	exitsyscall()
}

// launchShort is launch for a child that waits for nobody and is done soon. The P is taken
// from this thread only if there is other work, when the runtime's monitor notices. Giving the
// P back and getting another one would cost more than most of the steps.
//
//go:nosplit
//go:norace
func launchShort(c *control) {
	entersyscall()
	spawn(c)
	exitsyscall()
}
