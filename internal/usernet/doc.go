// Package usernet is the user-mode network of a sandbox: a TCP/IP stack in this process at
// the other end of the sandbox's only link.
//
// Every packet that leaves the sandbox ends here. TCP connections are terminated, and
// continue as connections that a [Gate] opens; the same is done for datagrams and echo
// requests. So nothing that the sandbox puts into a packet header reaches a real network:
// no source route, no forged address, no unusual protocol. The gate checks each connection
// before anything is sent for it.
//
// Packets are filtered before the stack sees them, because the stack is the larger program
// and may have bugs. The filter drops packets from addresses that are not the sandbox's
// own, multicast and broadcast, IP options, extension headers other than fragments, and
// control messages other than echo requests.
//
// Everything is limited for each sandbox: connections, buffers, datagram flows, packets
// that wait for a decision, echo requests in flight.
package usernet
