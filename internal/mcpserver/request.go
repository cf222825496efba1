package mcpserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/denials"
	"github.com/cloche-dev/cloche/internal/safeopen"
	"github.com/cloche-dev/cloche/policy"
)

type requestInput struct {
	Path    string  `json:"path,omitempty" jsonschema:"the file or folder, for access read and write"`
	Host    string  `json:"host,omitempty" jsonschema:"the host, for access connect: NAME:PORT, such as proxy.golang.org:443"`
	Access  string  `json:"access" jsonschema:"read, write (which includes reading) or connect"`
	Reason  string  `json:"reason" jsonschema:"why the task needs it, in one sentence for the person who decides"`
	Timeout float64 `json:"timeout_seconds,omitempty" jsonschema:"how long to wait for the decision; 300 if not given, which is the most"`
}

type requestOutput struct {
	Granted bool   `json:"granted"`
	Path    string `json:"path,omitempty" jsonschema:"what was granted; it may be less than was asked for"`
	Host    string `json:"host,omitempty"`
	Access  string `json:"access,omitempty"`
	Scope   string `json:"scope,omitempty" jsonschema:"once: your next command or file call; session, timed or always: longer"`
	Expires string `json:"expires,omitempty"`
	// Effective is false for a grant that this machine cannot act on.
	Effective bool `json:"effective" jsonschema:"whether it can be used now"`
	// NotOpened is what in the path stays as it was.
	NotOpened []string `json:"not_opened,omitempty" jsonschema:"what in the path stays hidden or read-only; ask for it by itself if the task needs it"`
	Why       string   `json:"why,omitempty" jsonschema:"why it was denied, or how it was allowed"`
}

// requestGrant is request_grant.
func (c *client) requestGrant(ctx context.Context, call call, in requestInput) (string, requestOutput, error) {
	if c.noApproval != nil && !c.dialog.canAsk() {
		return "", requestOutput{}, fmt.Errorf("nobody can be asked: %w; go on without it, or tell the user", c.noApproval)
	}
	r, err := c.request(ctx, in)
	if err != nil {
		return "", requestOutput{}, err
	}
	r.Program = clientName(call)
	if in.Timeout > 0 && in.Timeout < maxTimeout.Seconds() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(in.Timeout*float64(time.Second)), errTimeout)
		defer cancel()
	}
	if err := c.tryGrant(grant.Grant{Path: r.Path, Host: r.Host, Access: r.Access, Made: time.Now()}); err != nil {
		return "", requestOutput{}, fmt.Errorf("nobody can grant that: %w; go on without it", err)
	}
	stop := waiting(ctx, call)
	g, err := c.desk.Ask(ctx, r)
	stop()
	var denied *grant.DeniedError
	switch {
	case errors.As(err, &denied):
		why := denied.Why
		if context.Cause(ctx) == errTimeout {
			why = "nobody decided in time"
		}
		out := requestOutput{Why: visible(why)}
		return "denied: " + out.Why + ". Do not ask for the same again: go on without it, or tell the user what you need and why", out, nil
	case err != nil:
		return "", requestOutput{}, err
	}
	out := c.accept(ctx, g)
	return out.String(), out, nil
}

// request makes a request of what a client asks for. Nothing about it is said
// to the client that it does not know.
func (c *client) request(ctx context.Context, in requestInput) (grant.Request, error) {
	r := grant.Request{Host: in.Host, Access: grant.Access(in.Access), Reason: strings.TrimSpace(in.Reason), Workspace: c.config.Workspace, Run: rand.Text()}
	switch {
	case r.Reason == "":
		return r, errors.New("reason is empty; say in one sentence why the task needs it")
	case len(in.Host) > maxPath:
		return r, errors.New("host is too long; write NAME:PORT")
	case in.Path == "":
		return r, nil
	}
	s, err := c.sessions.fresh(ctx)
	if err != nil {
		return r, err
	}
	defer s.release()
	p, err := c.absolute(s, in.Path)
	if err != nil {
		return r, err
	}
	if isForm(p) {
		return r, errors.New("a path with a $ in it cannot be asked for: in a policy that is a variable; ask for the folder around it")
	}
	r.Path = p
	_, err = c.judge(s, in.Path, needOf(r.Access))
	r.Rule, r.Secret = refusedBy(s, err)
	if r.Access != grant.Write || r.Rule == "" {
		return r, nil
	}
	if r.Path = existing(p); r.Path != p {
		r.Written = p
	}
	var hidden *hiddenError
	if r.Path == "" && !errors.As(err, &hidden) {
		return r, fmt.Errorf("%s does not exist, and the folder to make it in is too much to ask for; ask the user to create it first", shortened(in.Path))
	}
	r.Path = cmp.Or(r.Path, p)
	return r, nil
}

func needOf(a grant.Access) policy.Access {
	if a == grant.Write {
		return policy.Write
	}
	return policy.Read
}

// refusedBy is the rule that refuses a path, in words, and whether it hides secrets; empty
// if none does.
func refusedBy(s *session, err error) (rule string, secret bool) {
	var hidden *hiddenError
	var denied *deniedError
	switch {
	case errors.As(err, &hidden):
		d, ok := decisionFor(s, "read", hidden.at)
		if !ok {
			return "hidden", false
		}
		return cmp.Or(visible(denials.RuleFrom(&d)), "hidden"), d.Access == policy.Hidden && d.Origin.Layer == policy.LayerPreset
	case errors.As(err, &denied):
		return cmp.Or(denied.rule, "not writable"), false
	}
	return "", false
}

// existing is the path itself, or the folder in which it has to be made: a rule
// about what does not exist opens nothing. It is empty if that folder holds much
// else, which is not asked for by the way.
func existing(p string) string {
	at, err := safeopen.RealPath(p)
	if err != nil {
		return p
	}
	if _, err := os.Lstat(at); err == nil {
		return p
	}
	for at != filepath.Dir(at) {
		at = filepath.Dir(at)
		if info, err := os.Lstat(at); err == nil && info.IsDir() {
			break
		}
	}
	if wide(at) {
		return ""
	}
	return at
}

// realOrWritten is where a path leads. One that cannot be followed is taken as it
// is written, so that the answer is not another one for it: no rule comes of it,
// see [sessions.open].
func realOrWritten(p string) (string, error) {
	real, err := safeopen.RealPath(p)
	if err != nil {
		return filepath.Clean(p), nil //nolint:nilerr // as it is written, and why is nobody's business
	}
	return real, nil
}

// wide reports whether a folder is the home folder, one around it, or one of the
// first in the tree.
func wide(folder string) bool {
	home, _ := os.UserHomeDir()
	if real, err := safeopen.RealPath(home); err == nil {
		home = real
	}
	return strings.HasPrefix(home+"/", strings.TrimSuffix(folder, "/")+"/") || filepath.Dir(folder) == filepath.Dir(filepath.Dir(folder))
}

// clientName is what the client says that it is, for the person who decides.
func clientName(c call) string { return clientOf(c.request.Session) }

func clientOf(s *mcp.ServerSession) string {
	p := s.InitializeParams()
	if p == nil || p.ClientInfo == nil {
		return ""
	}
	return shortened(p.ClientInfo.Name)
}

// waitInterval is how often a client receives word that nobody has decided yet: many
// end a call that they hear nothing of for a minute.
const waitInterval = 10 * time.Second

// waiting tells the client that a person is being asked, until stop is called.
func waiting(ctx context.Context, c call) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for i := 0; ; i++ {
			c.notify(ctx, float64(i), "waiting for a person to decide with cloche approve")
			select {
			case <-ctx.Done():
				return
			case <-time.After(waitInterval):
			}
		}
	}()
	return cancel
}

// accept puts a grant into force and says what came of it.
func (c *client) accept(ctx context.Context, g *grant.Grant) requestOutput {
	out := requestOutput{Granted: true, Path: visible(g.Path), Host: visible(g.Host), Access: string(g.Access), Scope: string(g.Scope), Why: visible(g.Reason)}
	if !g.Expires.IsZero() {
		out.Expires = g.Expires.Format(time.RFC3339)
	}
	var once []grant.Grant
	if g.Scope == grant.Once && g.ID != "" {
		once = append(once, *g)
		c.sessions.grantOnce(*g)
	}
	s, err := c.sessions.fresh(ctx, once...)
	if err != nil {
		out.Why = visible(err.Error())
		return out
	}
	defer s.release()
	_, out.Effective = c.allows(s, &grant.Request{Path: g.Path, Host: g.Host, Access: g.Access})
	kept, err := s.StaysClosed(ctx, *g)
	if err != nil {
		out.Effective, out.Why = false, visible(err.Error())
	}
	for _, k := range kept {
		out.NotOpened = append(out.NotOpened, visible(k.String()))
	}
	return out
}

// tryGrant reports why no session can be opened with a grant: all calls would fail.
func (c *client) tryGrant(g grant.Grant) error {
	s, err := c.sessions.fresh(c.ctx, g)
	if err == nil {
		s.release()
	}
	return err
}

// keeps is what a grant would leave closed in its path.
func (c *client) keeps(g grant.Grant) []grant.Kept {
	s, err := c.sessions.fresh(c.ctx)
	if err != nil {
		return nil
	}
	defer s.release()
	kept, _ := s.StaysClosed(c.ctx, g) // tryGrant says why there is no grant
	return kept
}

// covered says whether a request is for something that is allowed already. What
// is behind something hidden is not, wherever it leads.
func (c *client) covered(r *grant.Request) (rule string, ok bool) {
	if r.Rule != "" {
		return "", false
	}
	s, err := c.sessions.fresh(c.ctx)
	if err != nil {
		return "", false
	}
	defer s.release()
	return c.allows(s, r)
}

func (c *client) allows(s *session, r *grant.Request) (rule string, ok bool) {
	switch r.Access {
	case grant.Read:
		return "read " + r.Path, s.IsReadable(r.Path)
	case grant.Write:
		return "write " + r.Path, s.IsWritable(r.Path)
	}
	if isForm(r.Host) {
		return "", false
	}
	d, err := s.Check("connect", r.Host)
	return denials.Rule(&d), err == nil && d.Allowed
}

// String is the answer for a model.
func (o *requestOutput) String() string {
	what := o.Access + " " + o.Path + o.Host
	if !o.Effective {
		return "granted: " + what + ", but it cannot be used on this machine: " + o.Why + ". Tell the user"
	}
	text := "granted: " + what
	switch grant.Scope(o.Scope) {
	case grant.Once:
		if strings.HasPrefix(o.Why, "allowed already") {
			text += " is " + o.Why
			break
		}
		text += ", for your next command or file call only. Repeat what was refused now"
	case grant.Timed:
		text += " until " + o.Expires + ". Repeat what was refused"
	default:
		text += " from now on. Repeat what was refused"
	}
	const most = 10
	if list := o.NotOpened; len(list) > 0 {
		text += "; but not " + strings.Join(list[:min(len(list), most)], ", ")
		if len(list) > most {
			text += fmt.Sprintf(" and %d more", len(list)-most)
		}
		text += ": ask for it by itself if the task needs it"
	}
	return text
}

// An announcer tells a person that somebody waits. It says no more than was
// asked: a client may read it.
type announcer struct{ to io.Writer }

// Asked writes a line.
func (a *announcer) Asked(_ *grant.Desk, r grant.Request) {
	fmt.Fprintf(a.to, "cloche: request %s to %s waits for a decision; see it with: cloche approve\n", r.ID, r.Access)
}

// Withdrawn does nothing.
func (a *announcer) Withdrawn(grant.Request) {}
