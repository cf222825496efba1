// Package network serves the network of one sandbox from outside: it puts together
// the sandbox's namespace (package netns), the link by which packets leave it and
// the stack that they come to (package usernet), the gate that judges and makes
// each connection (package egress), ports that are published and forwarded, and
// other programs that a policy names in place of all that.
//
// Everything lives in this process. When it ends, however it does, the network is
// gone, and with it the sandbox.
package network
