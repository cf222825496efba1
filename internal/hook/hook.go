// Package hook lets a program decide about requests for access.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/grant"
)

// hookTimeout bounds how long a hook may run.
const hookTimeout = time.Minute

// maxHookOutput bounds the output that is read from a hook.
const maxHookOutput = 1 << 16

// A Hook is a [grant.Approver] that asks a program, such as an editor's. The program
// gets the request as one JSON object on standard input, and answers with a
// [grant.Decision] as JSON on standard output. If it prints nothing, others decide. If
// it fails, takes too long or prints anything else, the request is refused.
//
// The program runs outside any sandbox, and its environment is Env alone.
type Hook struct {
	// Path is the absolute path of the program.
	Path string
	Env  []string
	// Failed, unless nil, is called with the reason if the program gave no valid answer.
	Failed func(error)

	mu      sync.Mutex
	running map[string]context.CancelFunc
}

// New returns a hook for a program. Its path has to be absolute and outside the
// workspace: a confined command could have put it there.
func New(path, workspace string) (*Hook, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("hook %q: the path is relative; write it from / on", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("hook %s: %w; name a program that exists", path, err)
	}
	roots := []string{workspace}
	if root, err := filepath.EvalSymlinks(workspace); err == nil && workspace != "" {
		roots = append(roots, root)
	}
	for _, p := range []string{path, real} {
		if workspace != "" && slices.ContainsFunc(roots, func(root string) bool { return lies(root, p) }) {
			return nil, fmt.Errorf("hook %s lies in the workspace, where a confined command could have put it; keep it elsewhere", path)
		}
	}
	return &Hook{Path: real}, nil
}

// lies reports whether a path is in a folder, by name.
func lies(folder, p string) bool {
	rel, err := filepath.Rel(folder, p)
	return err == nil && filepath.IsLocal(rel)
}

// Asked starts the program for a request.
func (h *Hook) Asked(d *grant.Desk, r grant.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	h.mu.Lock()
	if h.running == nil {
		h.running = map[string]context.CancelFunc{}
	}
	h.running[r.ID] = cancel
	h.mu.Unlock()
	go func() {
		defer h.Withdrawn(r)
		decision, err := h.run(ctx, r)
		if err != nil {
			decision = &grant.Decision{Note: err.Error()}
			if h.Failed != nil && !errors.Is(ctx.Err(), context.Canceled) {
				h.Failed(err)
			}
		}
		if decision == nil || errors.Is(ctx.Err(), context.Canceled) {
			return
		}
		decision.By = "hook " + h.Path
		if _, err := d.Decide(r.ID, *decision); err != nil && !errors.Is(err, grant.ErrNotPending) {
			if h.Failed != nil {
				h.Failed(err)
			}
			_, _ = d.Decide(r.ID, grant.Decision{By: decision.By, Note: err.Error()})
		}
	}()
}

// Withdrawn ends the program of a request.
func (h *Hook) Withdrawn(r grant.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel := h.running[r.ID]; cancel != nil {
		cancel()
		delete(h.running, r.ID)
	}
}

// run returns the decision of the program, or nil if it leaves the decision to others.
func (h *Hook) run(ctx context.Context, r grant.Request) (*grant.Decision, error) {
	in, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, h.Path)
	cmd.Env, cmd.Dir, cmd.WaitDelay = h.Env, "/", time.Second
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(append(in, '\n')), &limited{w: &out, left: maxHookOutput}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("hook %s: %w", h.Path, err)
	}
	text := strings.TrimSpace(out.String())
	if text == "" {
		return nil, nil
	}
	decision, err := readDecision(text)
	if err != nil {
		return nil, fmt.Errorf("hook %s: its answer is no decision: %w; print one such as {\"allow\": true, \"scope\": \"session\"}", h.Path, err)
	}
	return decision, nil
}

// readDecision parses a decision. Anything else in the text is an error.
func readDecision(text string) (*grant.Decision, error) {
	var answer struct {
		grant.Decision
		For span `json:"for"`
	}
	read := json.NewDecoder(strings.NewReader(text))
	read.DisallowUnknownFields()
	if err := read.Decode(&answer); err != nil {
		return nil, err
	}
	if _, err := read.Token(); err != io.EOF {
		return nil, errors.New("something follows it")
	}
	answer.Decision.For = time.Duration(answer.For)
	return &answer.Decision, nil
}

// A span is a duration, written as in "1h" or as a number of nanoseconds.
type span time.Duration

// UnmarshalJSON reads a span.
func (s *span) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		return json.Unmarshal(b, (*int64)(s))
	}
	d, err := time.ParseDuration(text)
	*s = span(d)
	return err
}

// limited is a writer that accepts a limited number of bytes.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, fmt.Errorf("it printed more than %d bytes", maxHookOutput)
	}
	return l.w.Write(b)
}
