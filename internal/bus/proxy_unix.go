//go:build unix

package bus

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
)

// startTime is how long the proxy may take to start.
const startTime = 20 * time.Second

// A Proxy is a running proxy, or the place where one will listen. The methods of a nil
// Proxy do nothing.
type Proxy struct {
	folder  string
	remover *remover
	lock    *os.File // the folder, locked while it is in use

	mu       sync.Mutex
	unlinked bool
	cmd      *exec.Cmd
	ready    *os.File // this end of the pipe: the proxy ends when it is closed
	done     chan struct{}
}

// Reserve makes a folder for the proxy's socket, in the first of the folders in which
// other users cannot interfere. The folder is removed even if this process is killed.
// Reserve also removes older folders that are left anyway, for example after a power
// failure.
func Reserve(folders ...string) (*Proxy, error) {
	var errs []error
	for _, dir := range folders {
		p, err := reserveIn(dir)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, &Error{Step: "make a folder for its socket", Err: errors.Join(errs...), Fix: "set XDG_RUNTIME_DIR to a folder that only you can write"}
}

func reserveIn(dir string) (*Proxy, error) {
	dir, err := filepath.EvalSymlinks(dir) // the sandbox follows no link on the way
	if err != nil {
		return nil, err
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	sweep(dir)
	// The name cannot be guessed.
	p := &Proxy{folder: filepath.Join(dir, folderPrefix+rand.Text()[:16]), done: make(chan struct{})}
	if len(p.Socket()) > maxSocketPath || !canWatch(p.folder) {
		return nil, fmt.Errorf("%s: the path is too long for a socket, or has a line break", p.folder)
	}
	if p.remover, err = startRemover(); err != nil {
		return nil, err
	}
	if err := p.makeFolder(); err != nil {
		p.remover.dismiss()
		return nil, err
	}
	return p, nil
}

// makeFolder makes the folder and locks it. The remover learns the name first.
func (p *Proxy) makeFolder() error {
	if err := p.remover.watch(p.folder); err != nil {
		return err
	}
	if err := os.Mkdir(p.folder, 0o700); err != nil {
		return err
	}
	var err error
	if p.lock, err = lock(p.folder); err != nil {
		_ = os.Remove(p.folder)
	}
	return err
}

// private returns an error if another user could replace files in the folder.
func private(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	owned := int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
	sticky := st.Uid == 0 && st.Mode&unix.S_ISVTX != 0
	if !owned && !sticky {
		return fmt.Errorf("%s: others can write there", dir)
	}
	return nil
}

// lock locks a folder until the file is closed or this process ends.
func lock(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "lock", Path: folder, Err: err}
	}
	return f, nil
}

// sweepAge is the smallest age of folders that sweep removes: a newer one may be about
// to be locked.
const sweepAge = time.Minute

// sweep removes folders whose process was killed together with its remover.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(escapeGlob(dir), folderPrefix+"*"))
	for _, folder := range left {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		f, err := lock(folder)
		if err != nil {
			continue // it is in use, or belongs to another user
		}
		removeFolder(folder)
		_ = f.Close()
	}
}

// escapeGlob escapes the characters in a folder's name that have a meaning in a
// pattern.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

func removeFolder(folder string) {
	_ = os.Remove(filepath.Join(folder, socketName))
	_ = os.Remove(folder)
}

// Socket returns the path on which the proxy will listen. It has no symbolic links.
func (p *Proxy) Socket() string {
	if p == nil {
		return ""
	}
	return filepath.Join(p.folder, socketName)
}

// Alive reports whether the proxy runs.
func (p *Proxy) Alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Start starts the proxy from the path program, and returns when it listens.
func (p *Proxy) Start(ctx context.Context, program string, b *plan.Bus) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return &Error{Step: "start " + program, Err: err}
	}
	defer theirs.Close()
	said := &bytes.Buffer{}
	cmd := &exec.Cmd{
		Path: program, Args: arguments(b, p.Socket(), 3), Env: []string{"LC_ALL=C"}, Dir: "/",
		ExtraFiles: []*os.File{theirs}, Stderr: said,
		// Its own session, so that a signal of the terminal does not end it first.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay:   time.Second, // for reading its error messages
	}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return &Error{Step: "start " + program, Err: err}
	}
	_ = theirs.Close()
	p.cmd, p.ready = cmd, ours
	go func() { _ = cmd.Wait(); close(p.done) }()
	if err := p.await(ctx); err != nil {
		p.end()
		if text := bytes.TrimSpace(said.Bytes()); len(text) > 0 {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return &Error{Step: "wait for " + program, Err: err}
	}
	return nil
}

// await waits for the byte that the proxy writes when it listens.
func (p *Proxy) await(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := p.ready.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, err := io.ReadFull(p.ready, make([]byte, 1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return errors.New("it ended at once")
	case err != nil:
		return err
	}
	_, err = os.Lstat(p.Socket())
	return err
}

// Unlink removes the socket and its folder. It is called when the sandbox has mounted
// the socket.
func (p *Proxy) Unlink() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unlinked {
		p.unlinked = true
		removeFolder(p.folder)
		p.remover.dismiss()
		_ = p.lock.Close()
	}
}

// EndWith removes the socket and its folder, which the sandbox has mounted, and ends
// the proxy when done is closed.
func (p *Proxy) EndWith(done <-chan struct{}) {
	if p == nil {
		return
	}
	p.Unlink()
	go func() {
		<-done
		p.Close()
	}()
}

// Close ends the proxy, and returns when the proxy, its socket, its folder and the
// remover are gone.
func (p *Proxy) Close() {
	if p == nil {
		return
	}
	p.Unlink()
	<-p.remover.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// end kills the proxy, which has nothing to clean up.
func (p *Proxy) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.ready.Close()
	p.cmd = nil
}
