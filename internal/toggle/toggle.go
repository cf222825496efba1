// Package toggle stores what a person switched on or off at run time: for a terminal,
// until its shell ends, or for a project, until it is switched again. The file is one
// of cloche's own, so no confined command and no project file can switch anything.
package toggle

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cloche-dev/cloche/internal/ownfile"
	"github.com/cloche-dev/cloche/policy"
)

// FileName is the name of the store in the state folder.
const FileName = "toggles.json"

// A Scope says what a switch applies to.
type Scope string

// The scopes. A terminal's switch wins over a project's.
const (
	Terminal Scope = "terminal"
	Project  Scope = "project"
)

// A Switch is one stored switch.
type Switch struct {
	Scope Scope `json:"scope"`
	// Key identifies the terminal's session, or is the project's folder.
	Key string `json:"key"`
	Off bool   `json:"off"`
	// By, Made and Reason say who switched, when, and why.
	By     string    `json:"by,omitempty"`
	Made   time.Time `json:"made"`
	Reason string    `json:"reason,omitempty"`
}

// Origin says, for messages, that the state of the sandbox comes from this switch.
func (s *Switch) Origin() policy.Origin {
	verb := "cloche enable"
	if s.Off {
		verb = "cloche disable"
	}
	words := []string{verb, "--" + string(s.Scope)}
	if s.By != "" {
		words = append(words, "by", s.By)
	}
	words = append(words, s.Made.UTC().Format("2006-01-02 15:04"))
	return policy.Origin{Layer: policy.LayerSession, Source: strings.Join(words, " ")}
}

// Option applies the switch to a policy.
func (s *Switch) Option() policy.Option {
	off, origin := s.Off, s.Origin()
	return func(p *policy.Policy) { p.Disabled, p.DisabledOrigin = off, origin }
}

// A Store is the file with the switches.
type Store struct{ list ownfile.List[Switch] }

// Open returns the store of a state folder. It reads nothing yet.
func Open(stateDir string) *Store {
	s := &Store{ownfile.List[Switch]{What: "switches", Field: "switches", Lost: "remove the file: then every sandbox is as the policy says"}}
	if stateDir != "" {
		s.list.Path = filepath.Join(stateDir, FileName)
	}
	return s
}

// Set stores a switch, and replaces the one with the same scope and key. It removes
// switches of terminals that have ended.
func (s *Store) Set(sw Switch) error {
	if sw.Key == "" {
		return fmt.Errorf("switches: there is no %s to switch for", sw.Scope)
	}
	return s.list.Edit(func(list []Switch) ([]Switch, error) {
		list = slices.DeleteFunc(list, func(o Switch) bool {
			return o.Scope == sw.Scope && o.Key == sw.Key || o.Scope == Terminal && !alive(o.Key)
		})
		return append(list, sw), nil
	})
}

// Clear removes a switch, so that the policy decides again.
func (s *Store) Clear(scope Scope, key string) error {
	return s.list.Edit(func(list []Switch) ([]Switch, error) {
		return slices.DeleteFunc(list, func(o Switch) bool { return o.Scope == scope && o.Key == key }), nil
	})
}

// For returns the switch of the terminal, or, if there is none, of the project, or nil.
// It calls current only if there are switches at all, because every run calls For.
func (s *Store) For(current func() (terminal, project string)) (*Switch, error) {
	list, err := s.list.Read()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	terminal, project := current()
	for _, want := range []Switch{{Scope: Terminal, Key: terminal}, {Scope: Project, Key: project}} {
		for i := range list {
			if list[i].Scope == want.Scope && list[i].Key == want.Key && want.Key != "" {
				return &list[i], nil
			}
		}
	}
	return nil, nil
}
