package policy

import "strings"

// The sockets that are granted by what they are, not by where they lie. They are
// found when the plan is made, and shown at a place of their own inside, which
// the usual variable names.
const (
	// SSHAgent is the agent that SSH_AUTH_SOCK leads to. It signs for whoever can
	// connect to it.
	SSHAgent = "ssh-agent"
	// GPGAgent is the restricted socket of gpg-agent, meant for other machines:
	// it signs and decrypts, and neither exports nor deletes keys.
	GPGAgent = "gpg-agent"
)

// maxAbstract is the longest name of an abstract socket, in bytes: the address
// has 108, of which the first is zero.
const maxAbstract = 107

// Abstract reports whether the socket has a name ("@name") instead of a path.
func (s Socket) Abstract() bool { return strings.HasPrefix(s.Path, "@") }

// Agent reports whether the socket is [SSHAgent] or [GPGAgent].
func (s Socket) Agent() bool { return isAgent(s.Path) }

func isAgent(path string) bool { return path == SSHAgent || path == GPGAgent }

// settleSocket checks a socket as written, and joins a relative path to base.
// A file that is called like an agent, or begins with "@", is written with "./".
func settleSocket(base, p string) (string, error) {
	switch {
	case isAgent(p):
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

// socket settles the path of one entry of a document.
func (c *checker) socket(field string, p *string) {
	settled, err := settleSocket(c.doc.Base, *p)
	c.fail(field, err)
	*p = settled
}

// socket checks one entry of a policy.
func (v *validator) socket(field string, s Socket) {
	if s.Agent() || s.Abstract() {
		_, err := settleSocket("", s.Path)
		v.fail(field, s.Origin, err)
		return
	}
	v.path(field, s.Path, s.Origin, pathUse{})
}
