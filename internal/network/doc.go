// Package network serves the network of one sandbox from outside. It combines the
// sandbox's namespace and link (package netns), the TCP/IP stack at the other end of the
// link (package usernet), the gate that checks and makes each connection (package
// egress), and the published and forwarded ports.
//
// Everything runs in this process. When it ends, the network is gone, and with it the
// sandbox.
//
//	command ──► cloche0 (TUN or veth) ──► usernet (TCP/IP stack) ──► egress (the gate) ──► the host's network
//	   └──────► 127.0.0.1:53, :3128 ─────────────────────────────────►│
//
// # Links
//
// A TUN device needs /dev/net/tun. A veth pair can be made wherever a sandbox can: both
// ends are inside, and this process has a packet socket on the far end. The gateway's
// link address belongs to no interface, and the kernel inside knows it permanently, so
// only the packet socket gets frames for it. If neither link works, proxies listen
// inside, and the usual variables name them. A live probe decides.
//
// # The hand-over
//
// The network is made in parallel to the rest of the sandbox. The launched program sends its
// namespace over a socket (builtin.NetworkHandover), continues, and waits for one byte
// before it executes anything. If the network cannot be made, the supervisor closes
// the socket and the program fails: no command runs without its network. A namespace
// that is the machine's own is refused. A parked sandbox hands over once for all its
// commands; a wrapped command hands over to the process that wrapped it.
//
// # The end
//
// Link, listeners and connections are descriptors of this process and end with it. A
// TUN device stays until its namespace is gone, because closing it would cost each run
// some 15 ms.
//
// # The owner of a connection
//
// Before a client is connected, cloche asks the kernel for the client's socket
// (sock_diag, inside) and searches the namespace for the process that has it. In a
// session, the connection is recorded for the command of that process; if no process is
// found, for all commands that ran at that time.
package network
