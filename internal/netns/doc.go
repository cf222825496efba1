// Package netns makes sockets and links in the network namespace of a sandbox, and finds
// the processes that have its sockets.
//
// A socket belongs to the namespace in which it was made, no matter which process uses
// it. So no process of cloche has to stay inside: a child that shares the table of
// descriptors joins the namespace, makes a group of sockets and ends (see
// sysprog.Options.ShareFiles). The caller binds, configures and uses them. It may do so
// because a process has all capabilities in the user namespaces that its user has made,
// and root in all of them.
//
// The child first joins the user namespace that owns the network namespace. This is not
// always the command's: bubblewrap nests two of them.
package netns
