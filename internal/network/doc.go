// Package network serves the network of one sandbox from outside: it puts together
// the sandbox's namespace (package netns), the link by which packets leave it and
// the stack that they come to (package usernet), the gate that judges and makes
// each connection (package egress), ports that are published and forwarded, and
// other programs that a policy names in place of all that.
//
// Everything lives in this process. When it ends, however it does, the network is
// gone, and with it the sandbox.
//
//	command ──► cloche0 (TUN or veth) ──► usernet (TCP/IP stack) ──► egress (the gate) ──► the host's network
//	   └──────► 127.0.0.1:53, :3128 ─────────────────────────────────►│
//
// # Links
//
// A TUN device needs /dev/net/tun. A veth pair can be made by everybody who can make a
// sandbox: both ends are inside, and a packet socket on the far end is ours. The
// gateway has a link address that no interface has and that the kernel inside knows
// permanently, so only the packet socket gets its frames. Where neither works, proxies
// listen inside and the usual variables name them. A live probe decides.
//
// # The hand-over
//
// The network is made while the rest of the sandbox is. The launched program sends its
// namespace over a socket (builtin.NetworkHandover), goes on, and waits for one byte
// before it executes anything. If the network cannot be made, the supervisor closes
// the socket and the program fails: no command runs without its network. A namespace
// that is the machine's own is refused. A parked sandbox hands over once for all its
// commands; a wrapped command hands over to the process that wrapped it.
//
// # The end
//
// Link, listeners and connections are descriptors of this process and end with it. A
// TUN device stays until its namespace goes, because closing it would cost each run
// some 15 ms.
//
// # Whose connection it is
//
// The kernel is asked for the socket (sock_diag, inside) and the processes of the
// namespace for who holds it, before the client is told that it is connected. In a
// session the record goes to the command whose process it is; if nobody was found, to
// all that ran at that time.
package network
