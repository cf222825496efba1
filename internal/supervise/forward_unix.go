//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT,
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCONT,
}

// Forward passes the signals that this process receives on to the command. When the command
// stops, this process stops too, so that a shell's job control works as on the command itself.
// It is for a program that does nothing but run one command: a library must not take over its
// caller's signals. It ends with stop or with the run.
func Forward(p *Process) (stop func()) {
	c := &Catcher{signals: make(chan os.Signal, 64), run: make(chan *Process, 1), quit: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(c.signals, forwarded...)
	go c.serve()
	c.Forward(p)
	return c.Stop
}

// ForwardTo passes the signals that this process receives to send until stop is called, for a command that another process
// runs for this one. This process stops for Ctrl-Z together with the command. After stop, send is not called any more, so
// that the caller can close what it sends to.
func ForwardTo(send func(syscall.Signal)) (stop func()) {
	signals, quit, done := make(chan os.Signal, 64), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, forwarded...)
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case s := <-signals:
				stops := s == unix.SIGTSTP
				if stops && orphaned() {
					continue // the kernel ignores it then
				}
				send(s.(syscall.Signal))
				if stops {
					_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
				}
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-done
	}
}

// A Catcher catches signals for a run that is about to start: see [Catch].
type Catcher struct {
	signals    chan os.Signal
	run        chan *Process
	quit, done chan struct{}
	stop       sync.Once
}

// Catch is the first half of [Forward], for a caller whose run is about to start. The Go
// runtime takes a tenth of a millisecond for its first caught signal, because it starts a
// thread. With Catch, this happens while the sandbox is made. Until [Catcher.Forward] is
// called, a signal has its default effect: a start that hangs can be interrupted.
func Catch() *Catcher {
	c := &Catcher{signals: make(chan os.Signal, 64), run: make(chan *Process, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		signal.Notify(c.signals, forwarded...)
		c.serve()
	}()
	return c
}

// Forward passes signals on to the run from now on. Call it once.
func (c *Catcher) Forward(p *Process) { c.run <- p }

// Stop stops catching and forwarding.
func (c *Catcher) Stop() {
	c.stop.Do(func() { close(c.quit) })
	<-c.done
}

func (c *Catcher) serve() {
	defer close(c.done)
	defer signal.Stop(c.signals)
	for {
		select {
		case p := <-c.run:
			forward(p, c.signals, c.quit)
			return
		case s := <-c.signals:
			select {
			case p := <-c.run: // the run started at the same time
				forward(p, c.signals, c.quit, s)
				return
			default:
				c.early(s.(syscall.Signal))
			}
		case <-c.quit:
			return
		}
	}
}

// early gives a signal that arrived before the run started its default effect.
func (c *Catcher) early(s syscall.Signal) {
	if s == unix.SIGTSTP {
		// The Go runtime keeps its handler for this signal, and would drop it.
		if !orphaned() {
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		}
		return
	}
	signal.Stop(c.signals)
	_ = unix.Kill(unix.Getpid(), s)
	signal.Notify(c.signals, forwarded...) // the signal did not end this process
}

// forward passes signals on, beginning with those that have arrived already.
func forward(p *Process, signals chan os.Signal, quit <-chan struct{}, come ...os.Signal) {
	asked := false // this process received SIGTSTP and has passed it on
	pass := func(s os.Signal) {
		asked = s == unix.SIGTSTP || asked && s != unix.SIGCONT
		p.pass(s.(syscall.Signal), signals)
	}
	for _, s := range come {
		pass(s)
	}
	done := p.Done()
	for {
		select {
		case s := <-signals:
			pass(s)
		case sig := <-p.child.stops():
			if asked || jobControl(sig) {
				p.suspend(signals)
			}
			asked = false
		case <-done:
			return
		case <-quit:
			return
		}
	}
}

// pass sends one signal to the command. A command without an init is in an orphaned process
// group, where the kernel drops SIGTSTP, and nobody reports that it stopped. So it gets
// SIGSTOP instead.
func (p *Process) pass(sig syscall.Signal, signals chan os.Signal) {
	switch {
	case sig == unix.SIGCONT:
		p.term.resume()
		_ = p.Signal(sig)
	case sig == unix.SIGTSTP && !p.child.reportsStops():
		_ = p.Signal(unix.SIGSTOP)
		p.suspend(signals)
	default:
		_ = p.Signal(sig)
	}
}

// jobControl reports whether this process stops together with the command: a person pressed
// Ctrl-Z, or the command wants the terminal. If the command stops itself in another way, this
// process goes on and enforces its limits: a command must not be able to stop its supervisor.
func jobControl(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return foreground()
	}
	return false
}

// foreground reports whether this process is in the foreground job of its terminal.
func foreground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// suspend stops this process after the command has stopped, and continues the command when
// this process is continued.
func (p *Process) suspend(signals chan os.Signal) {
	p.term.detach()
	var late []syscall.Signal
	if !orphaned() {
		late = stopSelf(p.term != nil, signals)
	}
	p.term.resume()
	_ = p.Signal(unix.SIGCONT)
	for _, sig := range late {
		_ = p.Signal(sig)
	}
}

// stopSelf stops this process until SIGCONT and returns the other signals that arrived
// meanwhile. If the command has its own terminal, only the command received the Ctrl-Z. With
// wholeJob, the signal is also sent to the rest of this process's job, for example a shell
// script around it.
func stopSelf(wholeJob bool, signals chan os.Signal) (late []syscall.Signal) {
	// SIGTSTP is ignored here. Otherwise it could come out of the channel after SIGCONT and
	// stop the command again: the runtime does not keep the order of different signals, and
	// after a Reset its handler stays and catches a late one.
	signal.Ignore(unix.SIGTSTP)
	defer signal.Notify(signals, unix.SIGTSTP)
	late = past(signals)
	if wholeJob {
		_ = unix.Kill(0, unix.SIGTSTP)
	}
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	for s := range signals {
		if s == unix.SIGCONT {
			break
		}
		late = append(late, s.(syscall.Signal))
	}
	return append(late, past(signals)...)
}

// past empties the channel and returns the signals other than SIGTSTP and SIGCONT.
func past(signals <-chan os.Signal) (others []syscall.Signal) {
	for {
		select {
		case s := <-signals:
			if s != unix.SIGTSTP && s != unix.SIGCONT {
				others = append(others, s.(syscall.Signal))
			}
		default:
			return others
		}
	}
}

// orphaned reports whether nobody could continue this process if it stopped: no ancestor
// outside its process group is in its session. The kernel then ignores Ctrl-Z, and so does
// cloche.
func orphaned() bool {
	group, session := unix.Getpgrp(), sessionOf(0)
	for pid := unix.Getppid(); pid > 0; pid = parentOf(pid) {
		if sessionOf(pid) != session {
			return true
		}
		if g, err := unix.Getpgid(pid); err != nil || g != group {
			return err != nil
		}
	}
	return true
}

func sessionOf(pid int) int {
	s, err := unix.Getsid(pid)
	if err != nil {
		return -1
	}
	return s
}
