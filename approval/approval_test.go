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

func decide(t *testing.T, call Call, rs ...Resolver) Decision {
	t.Helper()
	var c Chain
	for _, r := range rs {
		if err := c.Register(r); err != nil {
			t.Fatal(err)
		}
	}
	return c.Decide(context.Background(), call)
}

// F9: the sandbox approves only if every condition is met.
func TestSandboxed(t *testing.T) {
	bash := Tool{Name: "bash", SandboxIsEnough: true}
	on := SandboxOptions{OptedIn: true}
	for _, c := range []struct {
		name    string
		tool    Tool
		options SandboxOptions
		why     error
		want    Verdict
	}{
		{"all conditions", bash, on, nil, Approve},
		{"not opted in", bash, SandboxOptions{}, nil, Ask},
		{"switched off", bash, SandboxOptions{OptedIn: true, Off: true}, nil, Ask},
		{"off for the tool", bash, SandboxOptions{OptedIn: true, Except: []string{"bash"}}, nil, Ask},
		{"the tool does not declare it", Tool{Name: "deploy"}, on, nil, Ask},
		{"no backend", bash, on, errors.New("no backend works here"), Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(t, Call{Tool: c.tool}, Sandboxed(&sandbox{why: c.why}, c.options)); got.Verdict != c.want {
				t.Errorf("%+v, want %v", got, c.want)
			}
		})
	}
}

// F9: the probe is asked each time, so that a sandbox that was lost is noticed.
func TestSandboxIsAskedEachTime(t *testing.T) {
	s := &sandbox{}
	var c Chain
	if err := c.Register(Sandboxed(s, SandboxOptions{OptedIn: true})); err != nil {
		t.Fatal(err)
	}
	call := Call{Tool: Tool{Name: "bash", SandboxIsEnough: true}}
	if got := c.Decide(context.Background(), call); got.Verdict != Approve {
		t.Errorf("at first: %+v", got)
	}
	s.why = errors.New("gone")
	if got := c.Decide(context.Background(), call); got.Verdict != Ask || s.asked != 2 {
		t.Errorf("then: %+v after %d questions", got, s.asked)
	}
}

// F9: explicit choices win over the sandbox, the configuration over the
// document, and a denial over an approval.
func TestPriorities(t *testing.T) {
	call := Call{Tool: Tool{Name: "bash", SandboxIsEnough: true}}
	sandboxed := Sandboxed(&sandbox{}, SandboxOptions{OptedIn: true})
	config := func(c Choices) Resolver { return Chosen("config", ConfigPriority, c) }
	document := func(c Choices) Resolver { return Chosen("document", DocumentPriority, c) }
	bash := []string{"bash"}
	for _, c := range []struct {
		name      string
		resolvers []Resolver
		want      string
	}{
		{"nobody", nil, "ask "},
		{"sandbox alone", []Resolver{sandboxed}, "approve sandbox"},
		{"the user asks to be asked", []Resolver{sandboxed, config(Choices{Ask: bash})}, "ask config"},
		{"the user denies", []Resolver{sandboxed, document(Choices{Deny: bash})}, "deny document"},
		{"config over document", []Resolver{document(Choices{Approve: bash}), config(Choices{Deny: bash})}, "deny config"},
		{"denial over approval", []Resolver{config(Choices{Approve: bash, Deny: bash})}, "deny config"},
		{"another tool", []Resolver{config(Choices{Deny: []string{"rm"}}), sandboxed}, "approve sandbox"},
		{"community between", []Resolver{sandboxed, {Name: "community", Resolve: always(Ask)}}, "ask community"},
		{"a resolver that yields", []Resolver{sandboxed, {Name: "community", Resolve: always(Yield)}}, "approve sandbox"},
		{"an unknown verdict", []Resolver{sandboxed, {Name: "odd", Resolve: always(9)}}, "ask odd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decide(t, call, c.resolvers...)
			if s := got.Verdict.String() + " " + got.Resolver; s != c.want {
				t.Errorf("%s (%s), want %s", s, got.Reason, c.want)
			}
		})
	}
}

// A resolver that fails approves nothing, and nobody below it does.
func TestFailureIsNotPassedOver(t *testing.T) {
	broken := Resolver{Name: "broken", Priority: 80, Resolve: func(context.Context, Call) (Verdict, string, error) {
		return Approve, "", errors.New("disk full")
	}}
	got := decide(t, Call{}, broken, Resolver{Name: "yes", Resolve: always(Approve)})
	if got.Verdict != Ask || got.Resolver != "broken" || !strings.Contains(got.Reason, "disk full") {
		t.Errorf("%+v", got)
	}
}

func TestRegister(t *testing.T) {
	var c Chain
	if err := c.Register(Resolver{Name: "x"}); err == nil {
		t.Error("a resolver without a function was taken")
	}
	for _, r := range []Resolver{{Name: "b", Resolve: always(Deny)}, {Name: "a", Resolve: always(Deny)}, {Name: "z", Priority: 60, Resolve: always(Ask)}, {Name: "b", Resolve: always(Approve)}} {
		if err := c.Register(r); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	for _, r := range c.Resolvers() {
		order = append(order, fmt.Sprint(r.Name, r.Priority))
	}
	if got := strings.Join(order, " "); got != "z60 a50 b50" {
		t.Errorf("order %s", got)
	}
	if !c.Unregister("z") || c.Unregister("z") || len(c.Resolvers()) != 2 {
		t.Error("unregister")
	}
}

func ExampleChain() {
	var c Chain
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(c.Register(Chosen("config", ConfigPriority, Choices{Deny: []string{"deploy"}})))
	must(c.Register(Sandboxed(&sandbox{}, SandboxOptions{OptedIn: true})))
	for _, t := range []Tool{{Name: "bash", SandboxIsEnough: true}, {Name: "deploy"}, {Name: "mail"}} {
		d := c.Decide(context.Background(), Call{Tool: t})
		fmt.Println(t.Name, d.Verdict)
	}
	// Output:
	// bash approve
	// deploy deny
	// mail ask
}
