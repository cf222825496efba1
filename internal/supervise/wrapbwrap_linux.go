package supervise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/builtin"
)

// A bwrapWatch ends the sandbox of a wrapped command when its launcher, which is
// bwrap itself, ends before it: by a signal, or because the caller gave up. bwrap
// tells its sandbox nothing of that.
type bwrapWatch struct {
	name string // of the command, in Args[0]
	pipe string // what /proc calls the pipe of status
	// reports are bwrap's own. bwrap holds the other end for as long as it lives,
	// and nobody inside does. status are the init's, and are thrown away.
	reports, status *os.File
	theirs          [2]*os.File
	// ours are the caller's copies of theirs. The command holds them: a reference
	// from here would keep those of a command that is never started.
	ours [2]weak.Pointer[os.File]
}

func newBwrapWatch(name string) (*bwrapWatch, error) {
	w := &bwrapWatch{name: name}
	var err error
	if w.reports, w.theirs[0], err = os.Pipe(); err != nil {
		return nil, err
	}
	if w.status, w.theirs[1], err = os.Pipe(); err != nil {
		closeAll([]*os.File{w.reports, w.theirs[0]})
		return nil, err
	}
	w.pipe, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.status.Fd()))
	return w, err
}

// file returns the file for a descriptor that the watch is about, or nil.
func (w *bwrapWatch) file(f *backend.File) (*os.File, error) {
	switch f.Kind {
	case builtin.BwrapStatus:
		return w.theirs[0], nil
	case builtin.InitStatus:
		return w.theirs[1], nil
	}
	return nil, nil
}

// begin starts the watch. If the command cannot be wrapped its files are closed,
// and if it is never started they are collected: both end the watch.
func (w *bwrapWatch) begin() {
	for i, f := range w.theirs {
		w.ours[i] = weak.Make(f)
	}
	w.theirs = [2]*os.File{}
	go func() {
		_, _ = io.Copy(io.Discard, w.status)
		w.status.Close()
	}()
	go w.run()
}

// run waits for the end of bwrap, and kills what it leaves.
func (w *bwrapWatch) run() {
	defer w.reports.Close()
	first := -1
	for dec := json.NewDecoder(w.reports); ; {
		var doc bwrapReport
		if dec.Decode(&doc) != nil {
			break
		}
		w.letGo() // bwrap has its own by now, and its end must be the last
		if doc.ChildPID > 0 && first < 0 {
			// bwrap lets it run only after the report: the number is still its own.
			first, _ = unix.PidfdOpen(doc.ChildPID, 0)
		}
	}
	if first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0) // it is gone already, or all in it has to go
		unix.Close(first)
	} else {
		w.killWaiting()
	}
	w.letGo()
}

// letGo ends the caller's copies. They are files of the command: not closed, which
// is for their owner to do, but led to nothing.
func (w *bwrapWatch) letGo() {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return // then the end of bwrap is noticed when the command is collected
	}
	defer null.Close()
	for _, p := range w.ours {
		f := p.Value()
		if f == nil {
			continue
		}
		if conn, err := f.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) { _ = unix.Dup3(int(null.Fd()), int(fd), unix.O_CLOEXEC) })
		}
	}
}

// killWaiting kills a child of bwrap that waits for ever, because bwrap was killed
// before it let the child run and before it reported its pid. It is found by its
// name and by the pipe for the init's reports, which nobody else of that name has.
func (w *bwrapWatch) killWaiting() {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || !w.isNamed(folder) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if w.isNamed(folder) && holds(folder, w.pipe) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
}

func (w *bwrapWatch) isNamed(folder string) bool {
	line, err := os.ReadFile(folder + "/cmdline")
	return err == nil && bytes.HasPrefix(line, append([]byte(w.name), 0))
}

// holds reports whether a process has a file open, by what /proc calls it.
func holds(folder, name string) bool {
	links, _ := filepath.Glob(folder + "/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == name {
			return true
		}
	}
	return false
}
