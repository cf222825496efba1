// Package netns makes sockets and links in the network namespace of a sandbox.
//
// A socket belongs to the namespace that it was made in for as long as it
// lives, whoever uses it. So nothing of cloche has to run inside: for each group
// of sockets a child that shares the table of descriptors joins the namespace,
// makes them and ends (see sysprog.Options.ShareFiles), and the caller binds,
// configures and uses them. It may do so because a process has all capabilities
// in the user namespaces that its user has made, and root in all of them.
//
// The namespace of users to join first is the one that owns the network
// namespace, which the kernel knows; it is not always that of the command:
// bubblewrap nests two of them.
package netns
