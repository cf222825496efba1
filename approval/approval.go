// Package approval decides whether a tool call of an agent may proceed without asking a
// person.
//
// A [Chain] asks in a fixed order: the user's configuration, the current document or command,
// the program's own resolvers, and last the sandbox. The first verdict that is not [Yield]
// decides. If all yield, the answer is [Ask]. The sandbox approves only tools that declare
// that a sandbox is enough for them.
package approval

import (
	"context"
	"fmt"
	"slices"
)

// A Verdict is the answer about a call.
type Verdict int

// The verdicts.
const (
	Yield   Verdict = iota // no opinion: the next one decides
	Approve                // proceed
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

// A Call is one use of a tool by an agent.
type Call struct {
	// Tool is the name of the tool.
	Tool string
	// SandboxIsEnough: the tool runs only in the sandbox, and may be approved because of it.
	SandboxIsEnough bool
	// Arguments are the tool's arguments, for resolvers that understand them.
	Arguments any
}

// A Decision is the answer about a call, and where it comes from.
type Decision struct {
	Verdict Verdict
	// Resolver is "config", "document", "sandbox" or the name of a [Resolver]; empty if all
	// yielded.
	Resolver string
	Reason   string
}

// A Chain decides about calls. Its zero value asks a person about everything. It is safe for
// concurrent use as long as nobody changes it.
type Chain struct {
	// Config is the user's configuration, Document that of the current document or command.
	Config, Document Choices
	// Resolvers are asked next, in this order.
	Resolvers []Resolver
	// Sandbox is asked last.
	Sandbox Sandbox
}

// Choices are a user's choices for tools by name. Deny wins over Ask, and Ask over Approve.
type Choices struct {
	Approve, Ask, Deny []string
}

// A Resolver decides for the calling program.
type Resolver struct {
	Name string
	// Resolve returns a verdict and the reason. After an error a person is asked.
	Resolve func(context.Context, Call) (Verdict, string, error)
}

// A Sandbox approves tools for which a sandbox is enough, if the user opted in and the
// sandbox works.
type Sandbox struct {
	// OptedIn: the user wants calls to be approved because of the sandbox.
	OptedIn bool
	// Except are tools that the user does not want to be approved because of the sandbox.
	Except []string
	// ConfinedBy returns the name of the backend that confines commands now, or why they are
	// not confined. It is called for each decision; see Session.ConfinedBy of package cloche.
	ConfinedBy func(context.Context) (backend string, err error)
}

// Decide returns the decision about a call. If a resolver fails, a person is asked: the next
// one must not approve what the failed one might have denied.
func (c *Chain) Decide(ctx context.Context, call Call) Decision {
	resolvers := slices.Concat(
		[]Resolver{c.Config.resolver("config"), c.Document.resolver("document")},
		c.Resolvers,
		[]Resolver{{Name: "sandbox", Resolve: c.Sandbox.resolve}},
	)
	for _, r := range resolvers {
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

func (c *Choices) resolver(name string) Resolver {
	return Resolver{Name: name, Resolve: func(_ context.Context, call Call) (Verdict, string, error) {
		verdict := Yield
		switch {
		case slices.Contains(c.Deny, call.Tool):
			verdict = Deny
		case slices.Contains(c.Ask, call.Tool):
			verdict = Ask
		case slices.Contains(c.Approve, call.Tool):
			verdict = Approve
		}
		return verdict, fmt.Sprintf("%s says %s for %s", name, verdict, call.Tool), nil
	}}
}

func (s *Sandbox) resolve(ctx context.Context, call Call) (Verdict, string, error) {
	if !s.OptedIn || !call.SandboxIsEnough || slices.Contains(s.Except, call.Tool) || s.ConfinedBy == nil {
		return Yield, "", nil
	}
	backend, err := s.ConfinedBy(ctx)
	if err != nil {
		return Yield, "", nil //nolint:nilerr // no sandbox is no failure: a person is asked
	}
	return Approve, "it runs in the sandbox (" + backend + ")", nil
}
