//go:build unix

package bus

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// removerShell runs the remover. Every machine with the proxy has it.
const removerShell = "/bin/sh"

// removerScript reads the path of a folder from its standard input and then waits for
// the end of the input, which means that this process was killed. Then it removes the
// folder. It tries several times, because the proxy, which ends at the same time, may
// just be binding its socket.
//
// It leaves a folder that is a link or belongs to another user, because that is not the
// folder that was made.
const removerScript = `IFS= read -r folder || exit 0
read -r end
tries=0
while [ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ] && [ $tries -lt 100 ]; do
	rm -f "$folder/` + socketName + `"
	rmdir "$folder" && exit 0
	tries=$((tries+1))
	sleep 0.1
done`

// A remover is a process that removes a folder if this process is killed before it has
// done so. The kernel removes no file when a process ends, and the socket needs a path
// until the sandbox has mounted it.
type remover struct {
	process *os.Process
	tell    *os.File
	done    chan struct{}
}

// startRemover starts a remover that knows no folder yet.
func startRemover() (*remover, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: removerShell, Args: []string{"sh", "-c", removerScript}, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Dir: "/",
		Stdin: theirs,
		// Its own session, so that a signal of the terminal does not end it first.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return nil, err
	}
	r := &remover{process: cmd.Process, tell: ours, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(r.done) }()
	return r, nil
}

// watch sends the remover the path of a folder that is about to be made. It uses a pipe
// and not an argument: another user must not learn the name before the folder exists.
func (r *remover) watch(folder string) error {
	_, err := r.tell.WriteString(folder + "\n")
	return err
}

// canWatch reports whether a path can be sent to the remover.
func canWatch(folder string) bool { return !strings.Contains(folder, "\n") }

// dismiss ends the remover after the folder was removed. done is closed when the
// remover has ended.
func (r *remover) dismiss() {
	_ = r.process.Kill() // before it sees the end of the pipe
	_ = r.tell.Close()
}
