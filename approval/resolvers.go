package approval

import (
	"context"
	"fmt"
	"slices"
)

// Choices are what a user said about tools by name. A denial beats an approval.
type Choices struct {
	Approve, Ask, Deny []string
}

// Chosen is the resolver of a user's choices: in the configuration, with
// [ConfigPriority], or for the document at hand, with [DocumentPriority].
func Chosen(name string, priority int, c Choices) Resolver {
	return Resolver{Name: name, Priority: priority, Resolve: func(_ context.Context, call Call) (Verdict, string, error) {
		for _, list := range []struct {
			verdict Verdict
			tools   []string
		}{{Deny, c.Deny}, {Ask, c.Ask}, {Approve, c.Approve}} {
			if slices.Contains(list.tools, call.Tool.Name) {
				return list.verdict, fmt.Sprintf("%s says %s for %s", name, list.verdict, call.Tool.Name), nil
			}
		}
		return Yield, "", nil
	}}
}

// A Sandbox says whether commands are confined, as of now.
type Sandbox interface {
	// Confined returns the name of what confines commands, or why they are not
	// confined: it is switched off, or no backend works here. It asks anew each
	// time, by a live probe or what one has found out.
	ConfinedBy(context.Context) (backend string, why error)
}

// SandboxOptions are the conditions of [Sandboxed] that are the user's.
type SandboxOptions struct {
	// OptedIn: the user wants any calls to be approved without being asked.
	OptedIn bool
	// Off switches approval because of the sandbox off, for all tools.
	Off bool
	// Except are tools for which it is off.
	Except []string
}

// Sandboxed approves tools for which a sandbox is enough, when the user opted in
// and the sandbox is on and works. Otherwise it yields, and says why.
func Sandboxed(s Sandbox, o SandboxOptions) Resolver {
	return Resolver{Name: "sandbox", Priority: SandboxedPriority, Resolve: func(ctx context.Context, call Call) (Verdict, string, error) {
		switch {
		case !o.OptedIn:
			return Yield, "the user has not opted in", nil
		case o.Off:
			return Yield, "approval because of the sandbox is off", nil
		case slices.Contains(o.Except, call.Tool.Name):
			return Yield, "approval because of the sandbox is off for " + call.Tool.Name, nil
		case !call.Tool.SandboxIsEnough:
			return Yield, call.Tool.Name + " does not say that a sandbox is enough for it", nil
		}
		backend, why := s.ConfinedBy(ctx)
		if why != nil {
			return Yield, "commands are not confined: " + why.Error(), nil //nolint:nilerr // it is the reason, and no failure
		}
		return Approve, "it runs in the sandbox (" + backend + ")", nil
	}}
}
