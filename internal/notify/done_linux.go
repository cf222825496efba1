//go:build amd64 || arm64

package notify

// Done returns a channel that is closed when the broker has nothing more to
// answer: the last process of the sandbox is gone, or Close was called.
func (b *Broker) Done() <-chan struct{} { return b.done }
