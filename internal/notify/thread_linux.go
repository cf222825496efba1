//go:build amd64 || arm64

package notify

import "runtime"

// A thread is an isolated thread that runs the loops of brokers, one after the
// other. To make one, and to let it end, costs as much as some ten calls that are
// answered: in a session the next command's broker takes over the last one's.
type thread struct{ loops chan func() }

// maxIdle is how many threads are kept while no broker needs them.
const maxIdle = 2

var idle = make(chan *thread, maxIdle)

// isolated runs f in a thread that isolateThread has prepared, and waits for it. f
// leaves the thread as it was.
func isolated(f func()) error {
	var t *thread
	select {
	case t = <-idle:
	default:
		t = &thread{loops: make(chan func())}
		ready := make(chan error)
		go t.run(ready)
		if err := <-ready; err != nil {
			return err
		}
	}
	done := make(chan struct{})
	t.loops <- func() {
		defer close(done)
		f()
	}
	<-done
	select {
	case idle <- t:
	default:
		close(t.loops)
	}
	return nil
}

func (t *thread) run(ready chan<- error) {
	runtime.LockOSThread() // for good: the thread ends with this
	err := isolateThread()
	ready <- err
	if err != nil {
		return
	}
	for f := range t.loops {
		f()
	}
}
