// Package egress is the gate of a sandbox's network. All data that leaves the sandbox goes
// through a Gate, which asks the plan's rules first and records each connection. It does
// not know how packets reach it: a user-mode network, a proxy listener and a name server
// call the same gate.
//
// A connection is checked three times, each time with what is known at that point:
//
//   - a name, when it is looked up: if no rule could allow it, no name server is asked,
//     so a look-up carries no data out;
//   - an address and port, when the sandbox connects to it, by the names that the sandbox
//     looked up and that led to the address. The gate dials the address that it checked,
//     and resolves nothing again;
//   - what the client says first: the server name of a TLS or QUIC ClientHello, and the
//     host of each request of plain HTTP/1 and HTTP/2, have to be allowed, too. So if
//     many names share an address, a rule for one does not allow the others.
//
// The client is the attacker. What it sends is parsed strictly: data that two servers
// could understand in two ways is refused. What a server answers is parsed only to find
// the end of a response.
//
// Limits. The gate sees nothing inside of TLS: if a server also serves other names to a
// client that asks for them after the handshake (domain fronting), only a rule without
// that server prevents it. A protocol that switches to TLS by a command of its own
// (STARTTLS) is checked by address and port. So are datagrams that are not QUIC.
//
// # How it works
//
// The connection to the server is made before the client's is accepted, so that a port
// on which nothing listens looks like one. The client's first bytes are held until their
// protocol is known. A TLS ClientHello is read as a whole. Plain HTTP/1 is carried request
// by request, and each request is written in a new form. HTTP/2 headers are decoded.
// QUIC's first packets are decrypted, with keys that everybody can derive. After the check
// the kernel copies the rest (splice). The parsers of HTTP/1, TLS and QUIC are our own:
// those of the standard library make every start slower, are lenient, and hide what they
// read. Ours are fuzzed against them. All tables and waits are bounded.
//
// If a person can be asked, a denied client is accepted and waits, because a kernel tries
// to connect for only two minutes. On yes, the attempt is checked and made again, with the
// plan's rules and the grant; the gate's own rules do not change.
package egress
