// Package usernet is the user-mode network of a sandbox: a TCP/IP stack in this
// process at the other end of the sandbox's only link.
//
// A packet that leaves the sandbox ends here. TCP connections are terminated
// and carried on by connections that a [Gate] opens; datagrams and echo
// requests likewise. So nothing that the sandbox puts into a packet header
// reaches a real network: no source route, no spoofed address, no odd
// protocol. The gate judges each connection before anything is sent for it.
//
// What comes in is checked before the stack sees it, because the stack is the
// larger part: sources that are not the sandbox's own, multicast and
// broadcast, IP options, extension headers other than fragments, and control
// messages other than echo requests are dropped.
//
// Everything is bounded for each sandbox: connections, buffers, datagram flows,
// packets that wait for a verdict, echo requests in flight.
package usernet
