package resolve

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func mustLayout(t *testing.T, p policy.Policy, programs ...string) *Layout {
	t.Helper()
	l, err := ResolveLayout(p, Request{Workspace: "/home/ana/project", Programs: programs}, machine())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// N10: the plan of a command in a layout is the one that it would have had alone.
func TestLayoutGivesTheSamePlan(t *testing.T) {
	p := workspacePolicy(rule(policy.Hidden, "/home/ana/project/secrets"))
	remapped := p
	remapped.Remap = "/workspace"
	strict := workspacePolicy()
	strict.Reads = policy.ReadsSystem
	for name, p := range map[string]policy.Policy{"plain": p, "remapped": remapped, "strict": strict} {
		t.Run(name, func(t *testing.T) {
			s := machine()
			for _, r := range []Request{
				{Name: "true", Args: []string{"true", "x"}},
				{Name: "/bin/true", Dir: "/home/ana/project/src", ExtraFiles: 2, Terminal: true},
			} {
				s.Environ = append(slices.Clone(s.Environ), "LC_ALL=C.UTF-8")
				r.Workspace = "/home/ana/project"
				want := mustResolve(t, p, r, s)
				got, err := mustLayout(t, p).Command(r, s, nil)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%+v:\ngot  %+v\nwant %+v", r, got, want)
				}
			}
		})
	}
}

// N10: variables for one command are for that one alone.
func TestLayoutEnvironment(t *testing.T) {
	l, s := mustLayout(t, workspacePolicy()), machine()
	value := func(set ...policy.EnvSet) string {
		t.Helper()
		p, err := l.Command(Request{Name: "true"}, s, set)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(p.Env, func(v plan.Var) bool { return v.Name == "LANG" })
		return p.Env[i].Value
	}
	if value() != "C" || value(policy.EnvSet{Name: "LANG", Value: "de"}) != "de" || value() != "C" {
		t.Error("a variable of one command is another one's")
	}
	s.Environ = []string{"PATH=/usr/bin:/bin", "LANG=fr"}
	if got := value(); got != "fr" {
		t.Errorf("LANG is %q after the environment has changed", got)
	}
}

// N10 C4: a command that does not fit the layout says so, and what is missing.
func TestLayoutRefuses(t *testing.T) {
	s := machine()
	strict := workspacePolicy(policy.PathRule{Path: "${WHICH:-cwd}/x", Access: policy.Hidden, Optional: true, Origin: rule(0, "").Origin})
	strict.Reads = policy.ReadsSystem
	l := mustLayout(t, strict)
	var refused *LayoutError
	if _, err := l.Command(Request{Name: "/home/ana/bin/tool"}, s, nil); !errors.As(err, &refused) || refused.Program != "/home/ana/bin/tool" {
		t.Errorf("a program that is not shown: %v", err)
	}
	if _, err := mustLayout(t, strict, "/home/ana/bin/tool").Command(Request{Name: "/home/ana/bin/tool"}, s, nil); err != nil {
		t.Errorf("a program that the layout was made for: %v", err)
	}
	if _, err := l.Command(Request{Name: "true", Dir: "/home/ana/project/src"}, s, nil); !errors.As(err, &refused) {
		t.Errorf("another folder, with a rule about it: %v", err)
	}
	s.Environ = append(s.Environ, "WHICH=/data")
	if _, err := l.Command(Request{Name: "true"}, s, nil); !errors.As(err, &refused) {
		t.Errorf("another value of a variable that a rule uses: %v", err)
	}
	var missing *CommandError
	if _, err := mustLayout(t, workspacePolicy()).Command(Request{Name: "nothing"}, machine(), nil); !errors.As(err, &missing) {
		t.Errorf("a program that does not exist: %v", err)
	}
}
