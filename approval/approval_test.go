package approval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

type sandbox struct {
	why   error
	asked int
}

func (s *sandbox) ConfinedBy(context.Context) (string, error) { s.asked++; return "native", s.why }

func always(v Verdict) func(context.Context, Call) (Verdict, string, error) {
	return func(context.Context, Call) (Verdict, string, error) { return v, "always", nil }
}

// F9: the sandbox approves only if every condition is met.
func TestSandboxed(t *testing.T) {
	bash := Call{Tool: "bash", SandboxIsEnough: true}
	for _, c := range []struct {
		name string
		call Call
		on   Sandbox
		why  error
		want Verdict
	}{
		{"all conditions", bash, Sandbox{OptedIn: true}, nil, Approve},
		{"not opted in", bash, Sandbox{}, nil, Ask},
		{"off for the tool", bash, Sandbox{OptedIn: true, Except: []string{"bash"}}, nil, Ask},
		{"the tool does not declare it", Call{Tool: "deploy"}, Sandbox{OptedIn: true}, nil, Ask},
		{"no backend", bash, Sandbox{OptedIn: true}, errors.New("no backend works here"), Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.on.ConfinedBy = (&sandbox{why: c.why}).ConfinedBy
			chain := Chain{Sandbox: c.on}
			if got := chain.Decide(t.Context(), c.call); got.Verdict != c.want {
				t.Errorf("%+v, want %v", got, c.want)
			}
		})
	}
	if got := (&Chain{Sandbox: Sandbox{OptedIn: true}}).Decide(t.Context(), bash); got.Verdict != Ask {
		t.Errorf("without a sandbox: %+v", got)
	}
}

// F9: the probe is asked each time, so that a sandbox that was lost is noticed.
func TestSandboxIsAskedEachTime(t *testing.T) {
	s := &sandbox{}
	c := Chain{Sandbox: Sandbox{OptedIn: true, ConfinedBy: s.ConfinedBy}}
	call := Call{Tool: "bash", SandboxIsEnough: true}
	if got := c.Decide(t.Context(), call); got.Verdict != Approve {
		t.Errorf("at first: %+v", got)
	}
	s.why = errors.New("gone")
	if got := c.Decide(t.Context(), call); got.Verdict != Ask || s.asked != 2 {
		t.Errorf("then: %+v after %d questions", got, s.asked)
	}
}

// F9: explicit choices win over the sandbox, the configuration over the
// document, and a denial over an approval.
func TestPriorities(t *testing.T) {
	call := Call{Tool: "bash", SandboxIsEnough: true}
	bash := []string{"bash"}
	community := func(v Verdict) []Resolver { return []Resolver{{"community", always(v)}} }
	on := Sandbox{OptedIn: true, ConfinedBy: (&sandbox{}).ConfinedBy}
	for _, c := range []struct {
		name  string
		chain Chain
		want  string
	}{
		{"nobody", Chain{}, "ask "},
		{"sandbox alone", Chain{Sandbox: on}, "approve sandbox"},
		{"the user asks to be asked", Chain{Sandbox: on, Config: Choices{Ask: bash}}, "ask config"},
		{"the user denies", Chain{Sandbox: on, Document: Choices{Deny: bash}}, "deny document"},
		{"config over document", Chain{Document: Choices{Approve: bash}, Config: Choices{Deny: bash}}, "deny config"},
		{"denial over approval", Chain{Config: Choices{Approve: bash, Deny: bash}}, "deny config"},
		{"question over approval", Chain{Config: Choices{Approve: bash, Ask: bash}}, "ask config"},
		{"another tool", Chain{Config: Choices{Deny: []string{"rm"}}, Sandbox: on}, "approve sandbox"},
		{"community between", Chain{Sandbox: on, Resolvers: community(Ask)}, "ask community"},
		{"choices over community", Chain{Document: Choices{Approve: bash}, Resolvers: community(Deny)}, "approve document"},
		{"a resolver that yields", Chain{Sandbox: on, Resolvers: community(Yield)}, "approve sandbox"},
		{"an unknown verdict", Chain{Sandbox: on, Resolvers: community(9)}, "ask community"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.chain.Decide(t.Context(), call)
			if s := got.Verdict.String() + " " + got.Resolver; s != c.want {
				t.Errorf("%s (%s), want %s", s, got.Reason, c.want)
			}
		})
	}
}

// A resolver that fails approves nothing, and nobody below it does.
func TestFailureIsNotPassedOver(t *testing.T) {
	broken := Resolver{Name: "broken", Resolve: func(context.Context, Call) (Verdict, string, error) {
		return Approve, "", errors.New("disk full")
	}}
	c := Chain{Resolvers: []Resolver{broken, {"yes", always(Approve)}}}
	got := c.Decide(t.Context(), Call{})
	if got.Verdict != Ask || got.Resolver != "broken" || !strings.Contains(got.Reason, "disk full") {
		t.Errorf("%+v", got)
	}
}

func ExampleChain() {
	c := Chain{
		Config:  Choices{Deny: []string{"deploy"}},
		Sandbox: Sandbox{OptedIn: true, ConfinedBy: (&sandbox{}).ConfinedBy},
	}
	for _, call := range []Call{{Tool: "bash", SandboxIsEnough: true}, {Tool: "deploy"}, {Tool: "mail"}} {
		fmt.Println(call.Tool, c.Decide(context.Background(), call).Verdict)
	}
	// Output:
	// bash approve
	// deploy deny
	// mail ask
}
