// Package cloche runs commands in a sandbox that they cannot leave, and shows what the sandbox
// does.
//
// A [policy.Policy] says what is wanted. [Command] runs one command under it,
// in the manner of [os/exec.Command]; [Open] starts a [Session] for many
// commands under one policy:
//
//	p := policy.Workspace("/home/ana/project")
//	result, err := cloche.Command(ctx, p, "npm", "test").Capture()
//
// If this machine cannot enforce the policy, the command does not run: the error names the
// rule, the reason and the fix. Every [Result] names the backend that enforced the policy and
// each gap that was accepted.
package cloche
