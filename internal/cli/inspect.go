package cli

import (
	"context"
	"errors"

	"github.com/cloche-dev/cloche"
)

// inspectingName is the program that can look inside TLS. See command cloche-https.
const inspectingName = "cloche-https"

// An inspectElsewhere is the error that the policy needs a look inside TLS, which this program cannot have.
type inspectElsewhere struct{ loaded *loaded }

func (e *inspectElsewhere) Error() string {
	return "the policy has secrets or rules about requests of HTTPS, and this program cannot look inside TLS"
}

// start executes the program that can in place of this one, which keeps the descriptor of the report. It returns
// only if it fails.
func (e *inspectElsewhere) start(args []string, reportFD int) error {
	session, err := e.loaded.open(context.Background(), cloche.WithDeferredPlan())
	if err != nil {
		return err
	}
	p, err := session.Explain()
	if err := errors.Join(err, session.Close()); err != nil {
		return err
	}
	path, err := findProgram(inspectingName, append(p.Writable(), e.loaded.workspace))
	if err != nil {
		return err
	}
	return replaceProcess(path, append([]string{inspectingName}, args...), reportFD)
}

type inspectionKey struct{}

// withInspection returns a context with what looks inside TLS for the sessions that are opened with it.
func withInspection(ctx context.Context, i cloche.Inspection) context.Context {
	return context.WithValue(ctx, inspectionKey{}, i)
}

// inspectionOf returns what looks inside TLS, or nil.
func inspectionOf(ctx context.Context) cloche.Inspection {
	i, _ := ctx.Value(inspectionKey{}).(cloche.Inspection)
	return i
}
