// Package approval decides whether a tool call of an agent may go ahead without
// asking a person. Resolvers are asked in the order of their priorities, and the
// first that does not yield decides; if all yield, the answer is [Ask].
//
// What the user chose stands above everything else ([ConfigPriority],
// [DocumentPriority]); the resolver of this package that trusts the sandbox
// ([Sandboxed]) comes last, and approves only tools that say of themselves that
// a sandbox is enough for them.
package approval

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// A Verdict is what a resolver says about a call.
type Verdict int

// The verdicts.
const (
	Yield   Verdict = iota // no opinion: ask the next one
	Approve                // go ahead
	Ask                    // a person has to decide
	Deny                   // do not do it
)

var verdictNames = [...]string{"yield", "approve", "ask", "deny"}

// String returns the verdict's name.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return "invalid"
	}
	return verdictNames[v]
}

// The priorities of the usual resolvers; higher ones are asked first.
const (
	ConfigPriority    = 100 // the user's configuration
	DocumentPriority  = 90  // the document or command at hand
	DefaultPriority   = 50  // resolvers of others
	SandboxedPriority = 25  // the sandbox
)

// A Tool is what an agent calls.
type Tool struct {
	Name string
	// SandboxIsEnough: the tool runs only in the sandbox, and may be approved
	// because of it.
	SandboxIsEnough bool
}

// A Call is one use of a tool.
type Call struct {
	Tool Tool
	// Arguments are the tool's own, for resolvers that know them.
	Arguments any
}

// A Resolver has an opinion about calls.
type Resolver struct {
	// Name is unique in a chain.
	Name string
	// Priority orders resolvers; 0 is DefaultPriority.
	Priority int
	// Resolve says what it thinks and why. An error is no opinion that anybody
	// could rely on: the call is not approved.
	Resolve func(context.Context, Call) (Verdict, string, error)
}

// A Decision is what came out, and who said so.
type Decision struct {
	Verdict  Verdict
	Resolver string // empty if all yielded
	Reason   string
}

// A Chain asks resolvers. Its zero value is empty and asks a person about
// everything. It is safe for concurrent use.
type Chain struct {
	mu        sync.Mutex
	resolvers []Resolver
}

// Register adds a resolver, or replaces the one of its name.
func (c *Chain) Register(r Resolver) error {
	if r.Name == "" || r.Resolve == nil {
		return fmt.Errorf("approval: a resolver needs a name and a function, and %q lacks one", r.Name)
	}
	if r.Priority == 0 {
		r.Priority = DefaultPriority
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(r.Name)
	c.resolvers = append(c.resolvers, r)
	slices.SortStableFunc(c.resolvers, func(a, b Resolver) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// Unregister removes a resolver, and reports whether it was there.
func (c *Chain) Unregister(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(name)
}

func (c *Chain) remove(name string) bool {
	before := len(c.resolvers)
	c.resolvers = slices.DeleteFunc(c.resolvers, func(r Resolver) bool { return r.Name == name })
	return len(c.resolvers) < before
}

// Resolvers returns all, in the order in which they are asked.
func (c *Chain) Resolvers() []Resolver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.resolvers)
}

// Decide asks the resolvers. One that fails is not passed over: what it might
// have forbidden must not be approved by the next, so a person is asked.
func (c *Chain) Decide(ctx context.Context, call Call) Decision {
	for _, r := range c.Resolvers() {
		verdict, reason, err := r.Resolve(ctx, call)
		switch {
		case err != nil:
			return Decision{Ask, r.Name, "it could not decide: " + err.Error()}
		case verdict < Yield || verdict > Deny:
			return Decision{Ask, r.Name, fmt.Sprintf("it gave the unknown verdict %d", int(verdict))}
		case verdict != Yield:
			return Decision{verdict, r.Name, reason}
		}
	}
	return Decision{Verdict: Ask, Reason: "nobody has an opinion"}
}
