// Package egress is the gate of a sandbox's network: everything that leaves
// goes through a Gate, which asks the plan's rules first, and keeps a record.
// It knows nothing of how packets reach it. A user-mode network, a proxy
// listener and a resolver all call the same gate.
//
// A connection is judged three times, each time by what is known then:
//
//   - a name, when it is looked up: one that no rule could allow is not sent to
//     any resolver, so that look-ups carry nothing out;
//   - an address and port, when it is connected to, by the names that the
//     sandbox asked for and that led to the address. What is dialled is the
//     address that was judged. Nothing is resolved again after the check;
//   - what the client says first: the server name of a TLS ClientHello, that of
//     QUIC included, and the host of each request of plain HTTP/1 and HTTP/2 have to be
//     allowed, too. So an address that many names share is not a way from one
//     of them to the others.
//
// The client is the attacker here. What it sends is parsed strictly: whatever two
// servers could understand in two ways is refused. What a server answers is
// parsed only as far as it takes to find the end of a response.
//
// Limits. Inside of TLS nothing is seen: a server that serves other names to a
// client which asks for them after the handshake (domain fronting) has to be kept out by not
// allowing it. A protocol that turns to TLS by a command of its own (STARTTLS)
// is judged by address and port. So are datagrams that are not QUIC.
package egress
