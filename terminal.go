package cloche

import "github.com/cloche-dev/cloche/internal/supervise"

// A HeldTerminal is the caller's terminal while the command is kept from it.
type HeldTerminal = supervise.Held

// PrintLine prints a line to the caller's terminal while the command runs. It prints
// nothing, and is false, where the command has no terminal of its own, while it draws
// on the whole screen or reads keys, and while the terminal is somebody else's.
func (c *Cmd) PrintLine(text string) bool { return c.process != nil && c.process.PrintLine(text) }

// HoldTerminal keeps the command from the caller's terminal until it is released,
// so that a question can be asked there: what the command prints waits, and keys
// are not its input. It is false where the command has not started or has no
// terminal of its own, and while the terminal is somebody else's.
func (c *Cmd) HoldTerminal() (*HeldTerminal, bool) {
	if c.process == nil {
		return nil, false
	}
	return c.process.HoldTerminal()
}
