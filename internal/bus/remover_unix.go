//go:build unix

package bus

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// removerShell runs the remover. A machine with the proxy has it.
const removerShell = "/bin/sh"

// removerScript reads the path of a folder from its standard input and waits for the
// end of that, which means that this process was killed. The proxy, which ends by
// then too, may only just be about to bind its socket, so that one try is not enough.
//
// A folder that is a link, or somebody else's, is not the one that was made.
const removerScript = `IFS= read -r folder || exit 0
read -r end
tries=0
while [ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ] && [ $tries -lt 100 ]; do
	rm -f "$folder/` + socketName + `"
	rmdir "$folder" && exit 0
	tries=$((tries+1))
	sleep 0.1
done`

// A remover is a process that removes a folder if this one is killed before it has
// done so. Nothing in the kernel removes a name with a process, and the socket has
// to have one until the sandbox has mounted it.
type remover struct {
	process *os.Process
	tell    *os.File
	done    chan struct{}
}

// startRemover starts a remover that has nothing to do yet.
func startRemover() (*remover, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: removerShell, Args: []string{"sh", "-c", removerScript}, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Dir: "/",
		Stdin: theirs,
		// Of its own: what ends the processes of a terminal is not to end it first.
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

// watch tells the path of a folder that is about to be made. It goes through a pipe
// and not in an argument: who else can make a folder there must not know the name
// before.
func (r *remover) watch(folder string) error {
	_, err := r.tell.WriteString(folder + "\n")
	return err
}

// canWatch reports whether a path can be told.
func canWatch(folder string) bool { return !strings.Contains(folder, "\n") }

// dismiss ends the remover, after the folder was removed. It is gone when done is
// closed.
func (r *remover) dismiss() {
	_ = r.process.Kill() // before it can see the end of the pipe
	_ = r.tell.Close()
}
