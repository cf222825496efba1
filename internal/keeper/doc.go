// Package keeper lets the commands of an agent share a warm session, although the agent starts a process of cloche
// for each of them.
//
// The keeper is a process of cloche that the first such process starts. It has the warm session. The later ones are its
// clients: each sends its arguments, environment and standard streams over a unix socket, passes its signals on, and
// ends with the status of the command. The keeper runs a command only as the client would. A client that has no keeper, or
// whose call the keeper does not take, runs the command itself, so the keeper is never needed.
//
// # Which keeper serves which client
//
// A command inherits much from the process that starts it: identity, namespaces, limits, the variables that cloche reads. None
// of that is sent. It is hashed into a [Key], which also names the agent, its folder and the file of cloche. The key is the
// name of the socket. A keeper whose own key is another does not start, and one does not serve a client with another key. So a client
// that differs from the keeper in anything has its own keeper, or none.
//
// # Trust
//
// The socket is in cloche's state folder, which no confined command sees. Both sides also check the process at the other
// end: the same user, the same file of cloche, the same namespaces, as many seccomp filters. A confined command differs in
// the last two, wherever its socket is.
//
// # The end
//
// The keeper ends when the agent does, and when it had no client for [Idle]. It removes its socket; the next keeper removes
// that of a killed one. It waits for commands that still run, whose clients wait as well. Its end in any other way ends its commands, and their
// clients report it. The end of a client ends its command.
package keeper

import (
	"errors"
	"os"
	"time"
)

// Idle is how long a keeper waits for a client.
const Idle = 5 * time.Minute

// ErrGone is the error of a call that a keeper has taken and not finished.
var ErrGone = errors.New("the process that keeps the sandbox has ended, and the command with it; it may have run in part")

// A Call is what a client wants to run.
type Call struct {
	// Args are for the two sides to agree on.
	Args []string
	// Env is the client's environment, and Dir the folder that the command starts in; empty is the keeper's.
	Env []string
	Dir string
	// Files are the standard streams.
	Files [3]*os.File
}
