//go:build amd64 || arm64

package sysprog

import _ "unsafe" // for go:linkname

// The hooks that package syscall itself puts around a system call. The
// runtime keeps them open to packages outside of the standard library (see
// go.dev/issue/67401).

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// spawn blocks all signals, clones, and lets the child run the records. In the
// parent it returns when the child has executed something or has ended, with
// the signals as they were.
//
// It is one piece of assembly because nothing of Go may run in between: neither
// in the child, nor in the parent while signals are blocked on its thread.
//
//go:noescape
func spawn(c *control)

// launch runs the child with the P given back, as for a system call that
// blocks: a stop of the world does not wait for this thread, and other
// goroutines, Options.SyncParent among them, get the P at once.
//
// The garbage collector meanwhile sees the stack up to this frame, so this
// function must not be split from it and must not grow it.
//
//go:nosplit
//go:norace
func launch(c *control) {
	entersyscallblock()
	spawn(c)
	exitsyscall()
}

// launchShort is for a child that waits for nobody and is soon done. The P is
// taken from this thread only if there is work for it, when the monitor of the
// runtime notices; to give it back and to get another one would cost more than
// most of the steps do.
//
//go:nosplit
//go:norace
func launchShort(c *control) {
	entersyscall()
	spawn(c)
	exitsyscall()
}
