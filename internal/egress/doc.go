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
//
// # How it is done
//
// The connection to the server is made before the client's is accepted, so that a
// refused port looks like one. The client's first bytes are held until they are
// recognised: a TLS greeting is read whole, plain HTTP/1 goes request by request and
// is written anew, HTTP/2 headers are decoded, QUIC's first packets are decrypted with
// the keys that everybody can derive. Once judged, the kernel carries the rest by
// splice(2). The parsers of HTTP/1, TLS and QUIC are our own: those of the standard library would make every
// start slower, are lenient where this has to be strict, and hide what they saw. They
// are fuzzed against them. All tables and waits are bounded.
//
// Where a person can be asked, a denied client is accepted and waits at the desk,
// because a kernel gives up a connect after two minutes. On yes the attempt is judged
// and made anew, by the plan's rules and what was granted; the gate's own rules do not
// change.
package egress
