package policy

import "strings"

// The sockets that are granted by name. Their paths are found when the plan is made.
// Inside they have other paths, which the usual variables name.
const (
	// SSHAgent is the agent that SSH_AUTH_SOCK names. It signs for every program that
	// can connect to it.
	SSHAgent = "ssh-agent"
	// GPGAgent is the restricted socket of gpg-agent, meant for other machines: it signs and
	// decrypts, and neither exports nor deletes keys. If gpg-agent has no such socket, its
	// ordinary one is granted, with a warning.
	GPGAgent = "gpg-agent"
)

// Datagrams is not a socket: it lets the command create datagram sockets. Such a socket
// can send to every socket of the host whose path the command knows, without being
// connected first. Before Linux 7.1, Landlock cannot check that, so a command gets none
// unless this or the path of a datagram socket is granted.
const Datagrams = "datagrams"

// maxAbstract is the longest name of an abstract socket, in bytes: sun_path has 108, and the
// first one is zero.
const maxAbstract = 107

// Abstract reports whether the socket has a name ("@name") instead of a path.
func (s Socket) Abstract() bool { return strings.HasPrefix(s.Path, "@") }

// Agent reports whether the socket is [SSHAgent] or [GPGAgent].
func (s Socket) Agent() bool { return isAgent(s.Path) }

func isAgent(path string) bool { return path == SSHAgent || path == GPGAgent }

// Datagrams reports whether the entry is [Datagrams].
func (s Socket) Datagrams() bool { return s.Path == Datagrams }

// settleSocket checks a socket as written, and joins a relative path to base. "./" in front of
// a file name distinguishes it from the special words and from "@name".
func settleSocket(base, p string) (string, error) {
	switch {
	case isAgent(p), p == Datagrams:
		return p, nil
	case strings.HasPrefix(p, "@"):
		return p, checkAbstract(p[1:])
	}
	return pathUse{}.settle(base, p)
}

func checkAbstract(name string) error {
	switch {
	case name == "":
		return faultf("write @ and the name, as /proc/net/unix shows it", "the name of the abstract socket is empty")
	case strings.IndexByte(name, 0) >= 0:
		return faultf("remove it", "holds a NUL byte")
	case len(name) > maxAbstract:
		return faultf("write the name as /proc/net/unix shows it", "the name of an abstract socket has at most %d bytes, and this %d", maxAbstract, len(name))
	}
	return nil
}

// socket checks the path of one entry and makes it absolute.
func (c *checker) socket(field string, p *string) {
	settled, err := settleSocket(c.doc.Base, *p)
	c.fail(field, err)
	*p = settled
}
