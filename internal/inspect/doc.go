// Package inspect ends TLS for chosen hosts. It judges each HTTP request by method and
// path, replaces placeholders by secrets in requests to the hosts that the secrets belong
// to, and refuses placeholders everywhere else.
//
// An [Inspector] has a certificate authority of its own, made in memory, which only the
// sandbox trusts. For each connection, Serve first speaks TLS with the server, verifies its
// certificate, and then answers the client with a certificate for the same name and with
// the protocol (HTTP/2 or HTTP/1.1) that the server chose. If the server's certificate is
// bad, the client's handshake fails, so cloche never vouches for a server that the client
// would have refused. Each connection of a client has one connection to the server.
//
// Requests are parsed and written anew by net/http. So a message that two servers could
// read in two ways ends here, and what is judged is what is sent.
//
// # Secrets
//
// The sandbox has placeholders only. A placeholder is replaced in the places that its
// secret names, by default in the field Authorization: as it stands there, or inside of
// base64, as Basic has it. Anywhere else that the inspector can see, it is refused:
// another host, another field, the path, the query, a body, a trailer, a WebSocket
// message. That protects against a server that publishes what it gets (a gist, an issue),
// and tells that somebody tried. It is not what keeps the secret: a placeholder that
// passes unnoticed, cut into pieces or encrypted, is sent as it is and is worth nothing.
//
// A value is asked for when it is needed and cleared after it was put into the request. Go
// does not let us clear all of it: header fields are strings, and net/http and crypto/tls
// copy them into buffers. These copies live until the garbage collector reuses their
// memory. So that answers can be searched for values that were used, the inspector keeps
// them until it is dropped, masked with random bytes.
//
// # Answers
//
// If an answer of any inspected host contains a value that was used, the client gets the
// placeholder instead, in the same length. This is a net and no promise: it finds the
// value itself and in base64, hex, percent-encoding and JSON, also split over reads. It
// does not find a value that a server turned round, cut into pieces, compressed by itself
// or encoded in still other ways, and none in coded answers to range requests. Values
// shorter than 6 bytes are not searched for.
//
// To search an answer, the inspector must be able to open it. It asks servers for gzip, if
// the client accepts gzip, and for no coding otherwise; it decompresses and sends the
// answer without coding. Of npm's metadata that takes as much processor time as asking for
// no coding at all, because less has to be decrypted, and a tenth of the network's. An
// answer in another coding is passed on unread: a server that wants to give a value away
// can always do so. Exchange.Opaque records it.
//
// # Cost
//
// Against two sockets that are spliced, on one machine: a new connection takes 1.1 ms more
// (client, server and inspector together), a kept request 70 to 90 µs, with or without a
// secret in it. HTTP/1.1 is carried at more than half of the speed, HTTP/2 at a third of
// it. A connection that carries an answer uses 125 to 190 KiB.
//
// # Limits
//
// Header sizes, handshakes, idle time, cached certificates and bodies that are read as a
// whole are bounded. All else is streamed. The number of connections is the caller's.
// A connection on which another protocol than HTTP is spoken ends at its first request. A
// server that asks for a client certificate cannot be inspected, and a client that pins a
// certificate cannot, either: see [TrustError]. HTTP/3 is not spoken: refuse UDP to
// inspected hosts. A server's offer of it (Alt-Svc) is removed.
package inspect
