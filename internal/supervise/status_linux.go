package supervise

import (
	"encoding/json"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/initprog"
)

// A bwrapReport is one of the objects that bwrap writes about itself.
type bwrapReport struct {
	ChildPID int `json:"child-pid"`
}

// readBwrap reads bwrap's own reports: JSON objects, the first of which has the
// pid of the sandbox's first process. It closes known after the first one.
func (c *child) readBwrap(f *os.File, known chan<- struct{}) {
	defer c.readers.Done()
	defer f.Close()
	first := sync.OnceFunc(func() { close(known) })
	defer first()
	dec := json.NewDecoder(f)
	for {
		var doc bwrapReport
		if dec.Decode(&doc) != nil {
			return
		}
		if doc.ChildPID > 0 {
			c.setPid1(doc.ChildPID)
		}
		first()
	}
}

// readInit reads the init's reports. The pid of pid 1 has been reported by the
// time that it runs, so a command that is known to run can be signaled; known
// is closed once that report was read.
func (c *child) readInit(f *os.File, known <-chan struct{}) {
	defer c.readers.Done()
	defer f.Close()
	settle := sync.OnceFunc(func() { <-known; close(c.settled) })
	defer settle()
	for {
		rec, err := initprog.ReadRecord(f)
		if err != nil {
			c.garbled(err)
			return
		}
		c.note(rec)
		if rec.Type == initprog.Started {
			settle()
		}
	}
}

func (c *child) garbled(err error) {
	if err == io.EOF {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.garbled = err
}

func (c *child) note(rec initprog.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch rec.Type {
	case initprog.Started:
		c.report.started = true
	case initprog.ExecFailed, initprog.SetupFailed, initprog.ProgramFailed:
		c.report.failed = rec
	case initprog.Exited:
		c.report.ended, c.report.status = true, unix.WaitStatus(rec.Value)
	case initprog.Stopped:
		select {
		case c.changes <- syscall.Signal(rec.Value):
		default: // nobody does job control
		}
	case initprog.Continued:
	}
}

// settle returns when the command runs or never will.
func (c *child) settle() {
	if c.statusFD >= 0 {
		c.readDirect()
		close(c.settled)
	}
	<-c.settled
}

// readDirect reads reports up to the one that settles the start, without the
// poller and a goroutine in between: that is the better part of what a warm
// start costs here. The end of the init ends it too.
func (c *child) readDirect() {
	for {
		rec, err := initprog.ReadRecord(statusReader(c.statusFD))
		if err == io.EOF && !c.hasInit {
			c.note(initprog.Record{Type: initprog.Started}) // the socket was closed by execve
			return
		}
		if err != nil {
			c.garbled(err)
			return
		}
		c.note(rec)
		if rec.Type != initprog.Stopped && rec.Type != initprog.Continued {
			return
		}
	}
}

// endDirect reads what is left of the reports when the init is gone: somebody
// else may still hold the pipe, a child that is just being made for instance, so
// its end of file is not waited for.
func (c *child) endDirect() {
	<-c.settled // or two would read
	poll := []unix.PollFd{{Fd: int32(c.statusFD), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(poll, 0); err == unix.EINTR {
			continue
		} else if n != 1 || poll[0].Revents&unix.POLLIN == 0 {
			break
		}
		rec, err := initprog.ReadRecord(statusReader(c.statusFD))
		if err != nil {
			c.garbled(err)
			break
		}
		c.note(rec)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasInit && c.report.failed.Type == 0 && c.report.garbled == nil {
		c.report.started = true // the socket was closed by execve, and nobody told of an error
	}
	c.pidfd = -1 // it is the forker's, which is released after this
	if c.lifeline != nil {
		c.lifeline.Close()
		c.lifeline = nil
	}
}

// A statusReader reads from a descriptor.
type statusReader int

// Read implements io.Reader.
func (r statusReader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(r), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
