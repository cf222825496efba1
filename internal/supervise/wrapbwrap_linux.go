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

// A bwrapWatch ends the sandbox of a wrapped command when bwrap, its launcher, ends first: by
// a signal, or because the caller gave up. bwrap itself does not end its sandbox then.
type bwrapWatch struct {
	name string // of the command, in Args[0]
	pipe string // the name of the status pipe in /proc
	// reports are bwrap's own reports. bwrap holds the other end for as long as it lives, and
	// no process inside does. status are the init's reports, which are discarded.
	reports, status *os.File
	theirs          [2]*os.File
	// ours are the caller's copies of theirs. They are weak because the command owns them: a
	// reference from here would keep those of a command that is never started.
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

// file returns the file for a descriptor that the watch uses, or nil.
func (w *bwrapWatch) file(f *backend.File) (*os.File, error) {
	switch f.Kind {
	case builtin.BwrapStatus:
		return w.theirs[0], nil
	case builtin.InitStatus:
		return w.theirs[1], nil
	}
	return nil, nil
}

// begin starts the watch. It ends if the command cannot be wrapped, because its files are then
// closed, and if the command is never started, because they are then garbage-collected.
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
		w.letGo() // bwrap has its own copies by now; the last end to close must be bwrap's
		if doc.ChildPID > 0 && first < 0 {
			// bwrap lets the child run only after the report, so the pid has not been reused.
			first, _ = unix.PidfdOpen(doc.ChildPID, 0)
		}
	}
	if first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0) // it has ended already, or everything in it has to end
		unix.Close(first)
	} else {
		w.killWaiting()
	}
	w.letGo()
}

// letGo replaces the caller's copies by the null device. They belong to the command, so
// closing them is left to their owner.
func (w *bwrapWatch) letGo() {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return // the end of bwrap is then noticed when the command is garbage-collected
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

// killWaiting kills a child of bwrap that would wait forever, because bwrap was killed before
// it let the child run and before it reported its pid. The child is found by its name and by
// the pipe for the init's reports, which no other process of that name has.
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

// holds reports whether a process has a file open, by the file's name in /proc.
func holds(folder, name string) bool {
	links, _ := filepath.Glob(folder + "/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == name {
			return true
		}
	}
	return false
}
