package mcpserver

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// grantArgs are the arguments of request_grant that ask for something.
type grantArgs struct {
	Path   string       `json:"path,omitempty" jsonschema:"the file or folder"`
	Host   string       `json:"host,omitempty" jsonschema:"the host, with a port"`
	Access grant.Access `json:"access" jsonschema:"read, write or connect"`
}

// String is how the call is written.
func (g grantArgs) String() string {
	b, err := json.Marshal(g)
	if err != nil {
		return ""
	}
	return string(b)
}

// A refusal is one thing that was refused to a command, or several equal ones.
type refusal struct {
	Operation string `json:"operation" jsonschema:"what was attempted"`
	Object    string `json:"object" jsonschema:"the path or host"`
	Program   string `json:"program,omitempty" jsonschema:"the program that attempted it"`
	Rule      string `json:"rule" jsonschema:"the rule that refused it, and where it comes from"`
	Reason    string `json:"reason,omitempty" jsonschema:"why there is that rule"`
	Count     int    `json:"count" jsonschema:"how often it happened"`
	// Request asks for it; nil where no grant would help.
	Request *grantArgs `json:"request_grant,omitempty" jsonschema:"arguments of request_grant that ask for it"`
}

func newRefusal(d *plan.Denial) refusal {
	r := refusal{Operation: string(d.Op), Object: visible(d.Path), Program: visible(d.Program), Reason: visible(d.Reason), Count: d.Count,
		Rule: visible(strings.TrimSpace(d.Rule+" "+d.Subject)) + ", from " + visible(d.Origin.String())}
	if d.NotWritable() {
		r.Rule, r.Reason = visible(d.Because()), "" // which has the reason
	}
	if d.Host != "" {
		r.Object = visible(d.Host)
		if d.Port != 0 {
			r.Object = visible(net.JoinHostPort(d.Host, strconv.Itoa(d.Port)))
		}
	}
	r.Request = askFor(d.Ask)
	return r
}

// askFor turns the edits that would allow something into a request. A host that is
// granted brings its network. JSON would turn bytes that are no UTF-8 into others, and
// so ask for another path.
func askFor(edits []policy.Edit) *grantArgs {
	for _, e := range edits {
		if !utf8.ValidString(e.Value) {
			return nil
		}
		switch e.Field {
		case "paths.read":
			return &grantArgs{Path: e.Value, Access: grant.Read}
		case "paths.write":
			return &grantArgs{Path: e.Value, Access: grant.Write}
		case "network.allow":
			return &grantArgs{Host: e.Value, Access: grant.Connect}
		}
	}
	return nil
}

// String is the refusal as a line for a model, with what to do.
func (r refusal) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "refused: %s %s", r.Operation, r.Object)
	if r.Program != "" {
		b.WriteString(" by " + r.Program)
	}
	if r.Count > 1 {
		fmt.Fprintf(&b, " (%d times)", r.Count)
	}
	b.WriteString("; rule " + r.Rule)
	if r.Reason != "" {
		b.WriteString(" (" + r.Reason + ")")
	}
	if r.Request == nil {
		b.WriteString("; no grant opens this: go on without it, or tell the user")
	} else {
		b.WriteString("; if the task needs it: " + toolRequest + " " + r.Request.String())
	}
	return b.String()
}

// maxRefusals bounds what is remembered, and maxShown what an answer of
// run_command lists.
const (
	maxRefusals = 200
	maxShown    = 10
)

// refusals are the latest refusals of all commands, oldest first.
type refusals struct {
	mu   sync.Mutex
	list []refusal
}

// note remembers the refusals of a run and returns them.
func (r *refusals) note(result *cloche.Result) []refusal {
	fresh := make([]refusal, 0, len(result.Denied))
	for i := range result.Denied {
		fresh = append(fresh, newRefusal(&result.Denied[i]))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fresh...)
	r.list = r.list[max(0, len(r.list)-maxRefusals):]
	return fresh
}

// about returns the latest refusals, of one object if that is not empty.
func (r *refusals) about(object string) []refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []refusal
	for _, x := range r.list {
		if object == "" || x.Object == object || strings.HasPrefix(x.Object, strings.TrimSuffix(object, "/")+"/") {
			found = append(found, x)
		}
	}
	return found
}
