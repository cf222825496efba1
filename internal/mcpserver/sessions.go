package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/cli"
	"github.com/cloche-dev/cloche/internal/safeopen"
)

// sessions keeps the session that calls use: a warm one for the policy and all
// that is granted for longer than one command. When that changes there is a new
// one, and the old one ends with the last call that uses it.
type sessions struct {
	config cli.MCP
	desk   *grant.Desk

	mu      sync.Mutex
	current *session
	once    []grant.Grant // for the next command
	closed  bool
}

// A session is a library session in use.
type session struct {
	*cloche.Session
	owner  *sessions
	grants string // what is granted in it
	users  int    // guarded by the owner's mutex
}

// take returns the warm session for a command that does not use up what is
// granted once. It has to be released.
func (s *sessions) take(ctx context.Context) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grants, err := s.lasting()
	if err != nil {
		return nil, err
	}
	if key := keyOf(grants); s.current == nil || s.current.grants != key || s.closed {
		fresh, err := s.open(ctx, grants, cloche.WithWarm())
		if err != nil {
			return nil, err
		}
		s.retire()
		s.current = fresh
	}
	s.current.users++
	return s.current, nil
}

// takeOnce returns the session for a command, which also gets what was granted
// once: then it is a session of its own.
func (s *sessions) takeOnce(ctx context.Context) (*session, error) {
	s.mu.Lock()
	once := s.once
	s.once = nil
	s.mu.Unlock()
	if len(once) == 0 {
		return s.take(ctx)
	}
	own, err := s.fresh(ctx, once...)
	if err != nil {
		s.grantOnce(once...)
	}
	return own, err
}

// fresh returns a session of its own, with some grants besides the lasting ones.
// Its plan is of this moment, while that of a session in use is of when it was
// opened: files that are hidden where they are found come and go.
func (s *sessions) fresh(ctx context.Context, more ...grant.Grant) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grants, err := s.lasting()
	if err != nil {
		return nil, err
	}
	own, err := s.open(ctx, append(grants, more...))
	if err != nil {
		return nil, err
	}
	own.users = 1
	return own, nil
}

// pendingOnce returns what is granted once and was not used yet.
func (s *sessions) pendingOnce() []grant.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.once)
}

// grantOnce keeps grants for the next command.
func (s *sessions) grantOnce(list ...grant.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range list {
		if !slices.ContainsFunc(s.once, func(o grant.Grant) bool { return o.ID == g.ID }) {
			s.once = append(s.once, g)
		}
	}
}

// used takes back what was granted once.
func (s *sessions) used(list []grant.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once = slices.DeleteFunc(s.once, func(g grant.Grant) bool {
		return slices.ContainsFunc(list, func(o grant.Grant) bool { return o.ID == g.ID })
	})
}

// lasting are the grants of more than one command that hold now: those of this
// client, and those that the store has for the workspace. What is revoked there
// is gone for the next command.
func (s *sessions) lasting() ([]grant.Grant, error) {
	list := slices.DeleteFunc(s.desk.Grants(), func(g grant.Grant) bool { return g.Scope != grant.Session })
	kept, err := s.config.Kept()
	if err != nil {
		return nil, fmt.Errorf("what was granted before cannot be read: %w", err)
	}
	return append(list, kept...), nil
}

func keyOf(grants []grant.Grant) string {
	ids := make([]string, len(grants))
	for i := range grants {
		ids[i] = grants[i].ID
	}
	return strings.Join(ids, " ")
}

// open opens a session for the policy with grants. A path that now leads to another file
// than when it was granted is left out: whoever could write around it may have
// put a link there. The mutex is held.
func (s *sessions) open(ctx context.Context, grants []grant.Grant, more ...cloche.Option) (*session, error) {
	if s.closed {
		return nil, cloche.ErrClosed
	}
	p := s.config.Policy.Clone()
	for i := range grants {
		if path := grants[i].Path; path != "" {
			if real, err := safeopen.RealPath(path); err != nil || real != path {
				continue
			}
		}
		option := grants[i].Option()
		if grants[i].Made.Before(s.config.Started) {
			option = grants[i].Kept()
		}
		option(&p)
	}
	if s.config.Ask {
		more = append(more, cloche.WithDesk(s.desk))
	}
	lib, err := cloche.Open(ctx, p, append(slices.Clone(s.config.Options), more...)...)
	if err != nil {
		return nil, err
	}
	return &session{Session: lib, owner: s, grants: keyOf(grants)}, nil
}

// retire lets the current session go. The mutex is held.
func (s *sessions) retire() {
	old := s.current
	s.current = nil
	if old != nil && old.users == 0 {
		_ = old.Close() // nothing runs in it
	}
}

// release ends the use of a session.
func (s *session) release() {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.users--
	if s.users == 0 && s.owner.current != s {
		_ = s.Close()
	}
}

// close lets the session go and opens no other.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.retire()
}
