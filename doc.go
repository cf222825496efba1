// Package cloche runs commands under a sandbox: what is under it cannot get
// out, and everyone can see what it does.
//
// A [policy.Policy] says what is wanted. [Command] runs one command under it,
// in the manner of [os/exec.Command]; [Open] starts a [Session] for many
// commands under one policy:
//
//	p := policy.Workspace("/home/ana/project")
//	result, err := cloche.Command(ctx, p, "npm", "test").Capture()
//
// Where this machine cannot enforce the policy the command does not run: the
// error says which rule, why, and what to do. Every [Result] names the backend
// that enforced it and each gap that was accepted.
package cloche
