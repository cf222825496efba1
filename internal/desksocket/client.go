package desksocket

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cloche-dev/cloche/grant"
)

// A Desk is the desk of a running command, seen from another process.
type Desk struct {
	Info     Info
	Requests []grant.Request
	address  string
}

// Find returns the desks of the user's running commands, with their waiting requests.
// Desks that end in the meantime are left out.
func Find() ([]Desk, error) {
	addresses, err := addresses()
	if err != nil {
		return nil, err
	}
	var desks []Desk
	for _, a := range addresses {
		m, err := exchange(a, message{Op: "list"})
		if err == nil && m.Info != nil {
			desks = append(desks, Desk{Info: *m.Info, Requests: m.Requests, address: a})
		}
	}
	return desks, nil
}

// Decide answers a request at the desk. The grant is nil if the request was refused.
func (d *Desk) Decide(id string, decision grant.Decision) (*grant.Grant, error) {
	m, err := exchange(d.address, message{Op: "decide", ID: id, Decision: &decision})
	if err != nil {
		return nil, err
	}
	if m.Gone {
		return nil, fmt.Errorf("request %s: %w; list the waiting requests with cloche approve", id, grant.ErrNotPending)
	}
	if m.Error != "" {
		return nil, errors.New(m.Error)
	}
	return m.Grant, nil
}

// exchangeTime bounds one exchange with a desk. The desk answers at once: it does not
// wait for a person.
const exchangeTime = 10 * time.Second

func exchange(address string, m message) (*message, error) {
	c, err := net.DialTimeout("unix", address, exchangeTime)
	if err != nil {
		return nil, fmt.Errorf("the command does not wait any more: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(exchangeTime)); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c).Encode(m); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var answer message
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	return &answer, nil
}
