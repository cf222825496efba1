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

// Forward makes this process stand for the command: signals that it gets go to
// the command, and when the command stops, it stops too, so that a shell's job
// control works on it as on the command itself. It is for a program that does
// nothing but run one command; a library must not take over its caller's
// signals. stop ends it; so does the end of the run.
func Forward(p *Process) (stop func()) {
	c := &Catcher{signals: make(chan os.Signal, 64), run: make(chan *Process, 1), quit: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(c.signals, forwarded...)
	go c.serve()
	c.Forward(p)
	return c.Stop
}

// A Catcher catches signals for a run that is about to start: see [Catch].
type Catcher struct {
	signals    chan os.Signal
	run        chan *Process
	quit, done chan struct{}
	stop       sync.Once
}

// Catch is the first half of [Forward], for a caller whose run is about to start.
// The Go runtime takes a tenth of a millisecond for its first caught signal, a
// thread of its own included; here it does so while the sandbox is being made.
// Until [Catcher.Forward] is called a signal has the effect that it would have
// had without: a start that hangs can be interrupted.
func Catch() *Catcher {
	c := &Catcher{signals: make(chan os.Signal, 64), run: make(chan *Process, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		signal.Notify(c.signals, forwarded...)
		c.serve()
	}()
	return c
}

// Forward passes signals on to the run from now on. It is called once.
func (c *Catcher) Forward(p *Process) { c.run <- p }

// Stop ends the catching and the passing on.
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
			case p := <-c.run: // both came at the same moment
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

// early gives a signal that came before there is a run the effect that it has by
// default.
func (c *Catcher) early(s syscall.Signal) {
	if s == unix.SIGTSTP {
		// The runtime keeps its handler for this one, and would drop it.
		if !orphaned() {
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
		}
		return
	}
	signal.Stop(c.signals)
	_ = unix.Kill(unix.Getpid(), s)
	signal.Notify(c.signals, forwarded...) // it was one that does not end us
}

// forward passes signals on, those that have come already first.
func forward(p *Process, signals chan os.Signal, quit <-chan struct{}, come ...os.Signal) {
	asked := false // we were told to stop, and have passed it on
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

// pass hands one signal on. A command with no init is in an orphaned process
// group, where the kernel drops SIGTSTP, and nobody reports that it stopped: it
// is stopped by force.
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

// jobControl reports whether a stop of the command is one that this process
// follows: a person pressed Ctrl-Z, or the command wants the terminal. A command
// that stops itself in any other way stays stopped, and its limits go on: it must
// not be able to stop the one who watches over it.
func jobControl(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return foreground()
	}
	return false
}

// foreground reports whether we are the foreground job of a terminal.
func foreground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// suspend stops this process after the command has stopped, and lets the
// command go on when it is continued.
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

// stopSelf stops this process until SIGCONT and returns what other signals came
// meanwhile. With a terminal of its own only the command has felt the Ctrl-Z;
// the rest of the job that we are part of, a shell script around us for
// instance, is owed the signal.
func stopSelf(wholeJob bool, signals chan os.Signal) (late []syscall.Signal) {
	// Ignored, it cannot come out of the channel after the SIGCONT, and stop the
	// command again: the runtime does not keep the order of different signals, and
	// after a Reset its handler stays and takes one that comes late.
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

// past empties the channel and returns what is not about stopping.
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

// orphaned reports whether nobody could continue us if we stopped: no ancestor
// outside our process group is in our session. The kernel ignores Ctrl-Z then,
// and so do we.
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
