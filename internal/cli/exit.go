package cli

import (
	"github.com/cloche-dev/cloche"
)

// The exit statuses of cloche's own. Everything else is the command's.
const (
	statusDenied   = 1   // of check, policy test, doctor and log --verify: the answer is no
	statusTimedOut = 124 // the command timed out
	statusRefused  = 125 // cloche could not or would not run the command, or ended it for a limit
	statusNotExec  = 126 // the command was found and cannot be executed
	statusNotFound = 127 // the command was not found
)

// A statusError ends cloche with a status. What there is to say was said.
type statusError int

func (e statusError) Error() string { return "" }

// ended is the error that ends cloche with a status, nil for 0.
func ended(status int) error {
	if status == 0 {
		return nil
	}
	return statusError(status)
}

// statusOf is the exit status for the error of a run.
func statusOf(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := as[statusError](err); ok {
		return int(s)
	}
	if e, ok := as[*cloche.ExitError](err); ok {
		return statusOfResult(e.Result)
	}
	return statusOfErrors(flatten(err))
}

// statusOfResult is the status of a command that ran and did not succeed. A
// limit other than time ends a command like a refusal: its own status would say
// nothing about why.
func statusOfResult(r *cloche.Result) int {
	switch {
	case r.TimedOut:
		return statusTimedOut
	case r.Exceeded != "", r.Canceled, r.Signal == fileSizeSignal:
		return statusRefused
	default:
		return r.ExitCode
	}
}

// statusOfErrors tells a command that is not there from everything else that
// kept it from running. A second error of another kind is the graver one.
func statusOfErrors(errs []error) int {
	status := 0
	for _, err := range errs {
		s := statusRefused
		if e, ok := as[*cloche.CommandError](err); ok {
			s = statusNotExec
			if e.NotFound {
				s = statusNotFound
			}
		} else if e, ok := as[*cloche.ExecError](err); ok {
			s = e.ExitCode()
		}
		if status != 0 && status != s {
			return statusRefused
		}
		status = s
	}
	return status
}
