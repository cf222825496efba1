package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche/grant"
)

// A person reads decisions, one on a line: "deny", or "allow" and any of a scope
// (once, session, always), "read" for less access, and a path below the one that
// was asked for.
type person struct {
	mu    sync.Mutex
	lines *bufio.Scanner
	out   io.Writer
}

func newPerson(in io.Reader, out io.Writer) *person {
	return &person{lines: bufio.NewScanner(in), out: out}
}

// Asked implements [grant.Approver]. A decision that gives more than was asked for
// is refused by the desk, and the person is asked again.
func (p *person) Asked(d *grant.Desk, r grant.Request) {
	go func() {
		p.mu.Lock() // one question at a time
		defer p.mu.Unlock()
		for p.ask(d, r) {
		}
	}()
}

// ask reports whether to ask again. A person who is gone has said no.
func (p *person) ask(d *grant.Desk, r grant.Request) bool {
	fmt.Fprintf(p.out, "the agent wants to %s, and says: %s\nallow or deny? ", r.String(), r.Reason)
	decision := grant.Decision{By: "nobody"}
	var err error
	if p.lines.Scan() {
		decision, err = parseDecision(p.lines.Text())
	}
	if err == nil {
		_, err = d.Decide(r.ID, decision)
	}
	if err == nil || errors.Is(err, grant.ErrNotPending) {
		return false
	}
	fmt.Fprintln(p.out, err)
	return true
}

// Withdrawn implements [grant.Approver].
func (p *person) Withdrawn(grant.Request) {}

func parseDecision(line string) (grant.Decision, error) {
	d := grant.Decision{By: "the person at the terminal"}
	verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch verdict {
	case "allow":
		d.Allow = true
	case "deny":
		return d, nil
	default:
		return d, fmt.Errorf("%q is neither allow nor deny", verdict)
	}
	for _, word := range strings.Fields(rest) {
		switch {
		case word == "once" || word == "session" || word == "always":
			d.Scope = grant.Scope(word)
		case word == "read" || word == "write":
			d.Access = grant.Access(word)
		case strings.HasPrefix(word, "/"):
			d.Path = word
		default:
			return d, fmt.Errorf("%q is no scope, access or path", word)
		}
	}
	return d, nil
}
