package resolve

import (
	"crypto/sha1"
	"fmt"
	"path"
	"strconv"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// The paths of the agents' sockets inside. GnuPG finds its agent only through its home folder,
// so it gets a home folder that contains only the socket.
const (
	sshAgentPath = "/run/cloche/ssh-agent"
	gnupgHome    = "/run/cloche/gnupg"
	gpgAgentPath = gnupgHome + "/S.gpg-agent"
)

func (b *builder) grantSSHAgent(s policy.Socket) {
	at, _ := b.getenv("SSH_AUTH_SOCK")
	if !path.IsAbs(at) {
		reason := "SSH_AUTH_SOCK is not set"
		if at != "" {
			reason = fmt.Sprintf("SSH_AUTH_SOCK is %q, which is relative", at)
		}
		b.noAgent(s, reason, "start an agent: eval \"$(ssh-agent)\"")
		return
	}
	if real, ok := b.agentSocket(s, path.Clean(at)); ok {
		b.showAgent(s, plan.SocketPath{Path: sshAgentPath, Source: real, Variable: "SSH_AUTH_SOCK", Value: sshAgentPath, HostValue: real})
	}
}

// agentSocket follows the path of an agent's socket, which has to exist.
func (b *builder) agentSocket(s policy.Socket, at string) (string, bool) {
	real, err := b.follow(at)
	switch {
	case err != nil:
		b.noAgent(s, err.Error(), "")
		return "", false
	case real.missing():
		b.noAgent(s, at+" does not exist", "start the agent")
		return "", false
	case real.info.Kind != hostfs.Socket:
		b.fail(&PolicyError{Rule: "sockets", Path: s.Path, Reason: at + " is a " + kindName(real.info.Kind) + ", not a socket", Origin: s.Origin})
		return "", false
	}
	if l, ok := b.loose(real.links); ok {
		b.failLoose("sockets", s.Path, real.path, l, s.Origin)
		return "", false
	}
	return real.path, true
}

// noAgent reports that an agent is not available: as a notice if it is optional, otherwise as
// an error.
func (b *builder) noAgent(s policy.Socket, reason, fix string) {
	if s.Optional {
		b.notice(plan.NoticeSkipped, fmt.Sprintf("sockets %q: %s", s.Path, reason), s.Origin)
		return
	}
	if fix != "" {
		fix += ", or "
	}
	b.fail(&PolicyError{Rule: "sockets", Path: s.Path, Reason: reason, Origin: s.Origin,
		Fix: fix + fmt.Sprintf("write %q if it may be missing", "?"+s.Path)})
}

// showAgent adds the lines for an agent to the plan.
func (b *builder) showAgent(s policy.Socket, at plan.SocketPath) {
	at.Reason, at.Origin = s.Reason, s.Origin
	if at.Reason == "" {
		at.Reason = s.Path
	}
	b.plan.Sockets = append(b.plan.Sockets, at)
	b.put(plan.Path{Path: at.Path, Source: at.Source, Kind: hostfs.Socket, Access: policy.Write, Written: s.Path, Reason: at.Reason, Origin: s.Origin})
}

func (b *builder) grantGPGAgent(s policy.Socket) {
	folders := b.gnupgFolders()
	for _, name := range []string{"S.gpg-agent.extra", "S.gpg-agent"} {
		for _, dir := range folders {
			at := path.Join(dir, name)
			if real, err := b.fs.follow(at); err != nil || real.info.Kind != hostfs.Socket {
				continue
			}
			if real, ok := b.agentSocket(s, at); ok {
				b.showGPGAgent(s, real, name, folders[len(folders)-1])
			}
			return
		}
	}
	b.noAgent(s, "gpg-agent has no socket in "+folders[0]+" or "+folders[len(folders)-1], "start it: gpgconf --launch gpg-agent")
}

func (b *builder) showGPGAgent(s policy.Socket, real, name, home string) {
	if name == "S.gpg-agent" {
		b.notice(plan.NoticeWarning, fmt.Sprintf("sockets %q: gpg-agent has no restricted socket (extra-socket), so %s is shown, by which keys can also be exported and deleted", s.Path, real), s.Origin)
	}
	b.put(plan.Path{Path: gnupgHome, Kind: hostfs.Dir, Content: plan.Empty, Access: policy.Write, Private: true, Reason: "the home of GnuPG inside", Origin: s.Origin})
	b.showAgent(s, plan.SocketPath{Path: gpgAgentPath, Source: real, Variable: "GNUPGHOME", Value: gnupgHome, HostValue: home})
}

// gnupgFolders returns the folders where gpg-agent may have its sockets: one in the user's
// runtime folder, and GnuPG's home folder.
func (b *builder) gnupgFolders() []string {
	usual := path.Join(b.snap.Home, ".gnupg")
	home, _ := b.getenv("GNUPGHOME")
	if !path.IsAbs(home) {
		home = usual
	}
	home = path.Clean(home)
	sockets := "/run/user/" + strconv.Itoa(b.snap.UID) + "/gnupg"
	if home != usual {
		sockets += "/d." + gnupgHash(home)
	}
	return []string{sockets, home}
}

// gnupgHash returns GnuPG's name for the socket folder of a home that is not the usual one: 15
// bytes of a SHA-1 in z-base-32. It is only a name; nothing relies on the strength of the
// hash.
func gnupgHash(home string) string {
	const alphabet = "ybndrfg8ejkmcpqxot1uwisza345h769"
	sum := sha1.Sum([]byte(home))
	var out []byte
	bits, n := uint32(0), 0
	for _, c := range sum[:15] {
		bits, n = bits<<8|uint32(c), n+8
		for n >= 5 {
			out = append(out, alphabet[bits>>(n-5)&31])
			n -= 5
		}
	}
	return string(out)
}

// grantVariables adds the variables that tell programs where granted sockets are.
func (b *builder) grantVariables(vars map[string]plan.Var) {
	for _, s := range b.plan.Sockets {
		if s.Variable != "" {
			vars[s.Variable] = plan.Var{Name: s.Variable, Value: s.Value, Origin: s.Origin}
		}
	}
	if bus := b.plan.Bus; bus != nil {
		vars[wellknown.BusVariable] = plan.Var{Name: wellknown.BusVariable, Value: "unix:path=" + bus.Path, Origin: bus.Origin}
	}
}
