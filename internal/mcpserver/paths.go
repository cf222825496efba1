package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// maxPath bounds a path, as the kernel does.
const maxPath = 4096

// A hiddenError is the one answer about everything that the policy does not let
// be read: whether it exists, and where links in it lead, stays unknown.
type hiddenError struct {
	typed string // as the client wrote it
	at    string // the first path on the way that is not readable
}

func (e *hiddenError) Error() string {
	return fmt.Sprintf("%s is not visible: it is hidden by the policy or does not exist. If the task needs it, call %s with %s; otherwise go on without it",
		shortened(e.typed), toolRequest, grantArgs{Path: shortened(e.typed), Access: grant.Read})
}

// A deniedError is a refusal of something that can be seen.
type deniedError struct {
	typed string
	need  policy.Access
	rule  string
}

func (e *deniedError) Error() string {
	why := ""
	if e.rule != "" {
		why = " (" + e.rule + ")"
	}
	return fmt.Sprintf("%s: %s is refused by the policy%s. If the task needs it, call %s with %s; otherwise go on without it",
		shortened(e.typed), e.need, why, toolRequest, grantArgs{Path: shortened(e.typed), Access: accessOf(e.need)})
}

func accessOf(need policy.Access) grant.Access {
	if need == policy.Write {
		return grant.Write
	}
	return grant.Read
}

// absolute makes a path of the host of what a client wrote: relative to the
// folder that commands start in, in the home folder ("~/x"), or as commands see it.
func (c *client) absolute(s *session, typed string) (string, error) {
	switch {
	case typed == "":
		return "", errors.New("the path is empty; name a file or folder")
	case strings.IndexByte(typed, 0) >= 0:
		return "", errors.New("the path holds a NUL byte; leave it out")
	case len(typed) > maxPath:
		return "", fmt.Errorf("the path is longer than %d bytes; name a shorter one", maxPath)
	}
	if rest, ok := strings.CutPrefix(typed, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("there is no home folder; write the path from / on")
		}
		return home + rest, nil
	}
	if !filepath.IsAbs(typed) {
		// Joined as it is: a ".." is for the walk along the real folders.
		return c.config.Dir + string(filepath.Separator) + typed, nil
	}
	if p, err := s.Explain(); err == nil {
		if host, ok := p.HostPath(filepath.Clean(typed)); ok && host != filepath.Clean(typed) {
			return host, nil
		}
	}
	return typed, nil
}

// look follows a path the way a command would, and returns where it leads. What
// lies behind something unreadable is a *hiddenError, however it goes on there.
func (c *client) look(s *session, typed string) (real string, err error) {
	p, err := c.absolute(s, typed)
	if err != nil {
		return "", err
	}
	volume := filepath.VolumeName(p)
	root := volume + string(filepath.Separator)
	real = root
	closed := "" // the first unreadable folder, while in one
	for name := range strings.FieldsFuncSeq(p[len(volume):], func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) }) {
		next, err := safeopen.Confine(root, real+string(filepath.Separator)+name)
		if err != nil {
			if closed == "" {
				closed = filepath.Join(real, name)
			}
			return "", &hiddenError{typed, closed}
		}
		// A link in a folder that cannot be read would tell where it leads.
		if closed != "" && name != ".." && next != filepath.Join(real, name) {
			return "", &hiddenError{typed, closed}
		}
		real = next
		switch {
		case s.IsReadable(real):
			closed = ""
		case closed == "":
			closed = real
		}
	}
	if closed != "" {
		return "", &hiddenError{typed, closed}
	}
	return real, nil
}

// find returns the real path of what a client wrote and a session in which the
// access is allowed. What was granted once is used up if it is needed.
func (c *client) find(ctx context.Context, typed string, need policy.Access) (s *session, real string, err error) {
	s, err = c.sessions.fresh(ctx)
	if err != nil {
		return nil, "", err
	}
	real, err = c.judge(s, typed, need)
	if err == nil {
		return s, real, nil
	}
	once := c.sessions.pendingOnce()
	var hidden *hiddenError
	var denied *deniedError
	if len(once) == 0 || !errors.As(err, &hidden) && !errors.As(err, &denied) {
		s.release()
		return nil, "", err
	}
	s.release()
	own, openErr := c.sessions.fresh(ctx, once...)
	if openErr != nil {
		return nil, "", err
	}
	if real, retry := c.judge(own, typed, need); retry == nil {
		c.sessions.used(once)
		return own, real, nil
	}
	own.release()
	return nil, "", err
}

// judge looks a path up and says whether the access is allowed.
func (c *client) judge(s *session, typed string, need policy.Access) (real string, err error) {
	real, err = c.look(s, typed)
	if err != nil {
		return "", err
	}
	if need == policy.Write && !s.IsWritable(real) {
		return "", &deniedError{typed: typed, need: need, rule: ruleFor(s, "write", real)}
	}
	return real, nil
}

// ruleFor says which rule decides about a real path, "" if that is not known.
func ruleFor(s *session, op plan.Op, real string) string {
	d, ok := decisionFor(s, op, real)
	if !ok {
		return ""
	}
	return visible(denials.RuleFrom(&d))
}

// decisionFor is the decision about a real path. There is none about a path that holds "$",
// which would stand for variables of this process.
func decisionFor(s *session, op plan.Op, real string) (plan.Decision, bool) {
	if strings.Contains(real, "$") {
		return plan.Decision{}, false
	}
	d, err := s.Check(op, real)
	return d, err == nil
}
