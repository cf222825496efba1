package backendtest

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

// exactSocketCases test what a grant of one socket does not allow.
var exactSocketCases = []testCase{
	{"sockets/kept", []string{"sockets"}, keptSocket},
	{"sockets/beside", []string{"sockets"}, socketBeside},
	{"sockets/later", []string{"sockets", "sockets.later"}, laterSocket},
	{"sockets/replaced", []string{"sockets"}, replacedSocket},
	{"sockets/linked", []string{"sockets"}, linkedSocket},
	{"sockets/by-descriptor", []string{"sockets"}, socketByDescriptor},
	{"sockets/datagram", []string{"sockets"}, grantedDatagram},
	{"sockets/later-datagram", []string{"sockets", "sockets.later", "sockets.datagrams"}, laterDatagram},
	{"sockets/host-network", []string{"network", "sockets", "sockets.later"}, hostNetworkSockets},
}

// C2: a granted socket in a writable folder cannot be removed or replaced, and a hidden
// one beside it cannot take its place or get another name.
func keptSocket(c *check) {
	short := c.shortDir()
	ws := c.dir(short, "ws")
	c.must(os.Mkdir(ws+"/d", 0o755))
	c.must(os.WriteFile(ws+"/file", nil, 0o644))
	granted, hidden := ws+"/d/s", ws+"/d/h"
	c.listen("unix", granted)
	c.listen("unix", hidden)
	b := c.box(policy.AllowSocket(granted))
	b.workspace = ws
	answers := b.do(
		on("unlink", granted), fromTo("rename", granted, ws+"/x"), fromTo("rename", ws+"/file", granted), exchange(ws+"/file", granted),
		fromTo("link", granted, ws+"/y"), fromTo("rename", ws+"/d", ws+"/e"),
		on("unlink", hidden), fromTo("rename", hidden, ws+"/x"), exchange(hidden, granted), fromTo("link", hidden, ws+"/z"),
		dial(hidden), dial(ws+"/x"), dial(ws+"/y"), dial(ws+"/z"), dial(ws+"/e/h"), dial(granted),
	)
	last := len(answers) - 1
	c.refused(answers[:last]...)
	c.reads(answers[last], greeting)
	for _, p := range []string{granted, hidden} {
		if _, err := os.Lstat(p); err != nil {
			c.Errorf("the host's socket is gone: %v", err)
		}
	}
}

// during makes some attempts before a change on the host, and others after it.
func (b *box) during(change func(), before, after []op) []answer {
	ready, ended := filepath.Join(b.workspace, "ready"), filepath.Join(b.workspace, "changed")
	var other sync.WaitGroup
	defer other.Wait()
	ran := make(chan struct{})
	defer close(ran) // a command that was refused never becomes ready
	other.Go(func() {
		for range 3000 {
			if _, err := os.Lstat(ready); err == nil {
				break
			}
			select {
			case <-ran:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		change()
		_ = os.WriteFile(ended, nil, 0o644) // without this file the probe fails
	})
	ops := append(append([]op{}, before...), create(ready), on("await", ended))
	return b.do(append(ops, after...)...)
}

// C2: a granted socket in a hidden folder shows nothing else of the folder: no existing
// socket, no socket that is made later, and not the folder itself. (The folder is in
// the private /tmp.)
func socketBeside(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	c.listen("unix", elsewhere+"/s")
	c.listen("unix", elsewhere+"/there")
	b := c.box(policy.AllowSocket(elsewhere + "/s"))
	b.workspace = ws
	answers := b.during(func() { c.listen("unix", elsewhere+"/later") },
		[]op{dial(elsewhere + "/s"), dial(elsewhere + "/there")},
		[]op{dial(elsewhere + "/s"), dial(elsewhere + "/later"), dial(elsewhere + "/there"), dial(elsewhere + "/s/../later"), create(elsewhere + "/new")})
	c.reads(answers[0], greeting)
	c.refused(answers[1])
	c.reads(answers[4], greeting)
	c.refused(answers[5 : len(answers)-1]...)
	if _, err := os.Lstat(elsewhere + "/new"); err == nil {
		c.Errorf("a file was made in the folder of the socket")
	}
}

// C2: a socket that the host makes while the command runs, in the workspace or in a
// readable folder, cannot be reached by any name. Neither can a socket that replaces a
// granted one there.
func laterSocket(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	first := c.listen("unix", elsewhere+"/s")
	b := c.box(policy.AllowRead(elsewhere), policy.AllowSocket(elsewhere+"/s"))
	b.workspace = ws
	answers := b.during(func() {
		c.listen("unix", elsewhere+"/later")
		c.listen("unix", ws+"/later")
		_ = first.Close() // this removes the socket
		c.listen("unix", elsewhere+"/s")
	}, []op{dial(elsewhere + "/s")}, []op{
		dial(elsewhere + "/later"), dial(ws + "/later"), on("connectfd", ws+"/later"), dial("/proc/self/cwd/later"), dial(elsewhere + "/s"),
		fromTo("link", ws+"/later", ws+"/second"), fromTo("symlink", elsewhere+"/later", ws+"/link"), dial(ws + "/second"), dial(ws + "/link"),
	})
	c.reads(answers[0], greeting)
	c.refused(answers[3:8]...)
	c.refused(answers[10:]...)
}

// C2: a grant is for the socket that existed at the start. A socket that another
// program puts in its place later cannot be reached.
func replacedSocket(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	first := c.listen("unix", elsewhere+"/s")
	b := c.box(policy.AllowSocket(elsewhere + "/s"))
	b.workspace = ws
	answers := b.during(func() {
		_ = first.Close() // this removes the socket
		c.listen("unix", elsewhere+"/s")
	}, []op{dial(elsewhere + "/s")}, []op{dial(elsewhere + "/s")})
	c.reads(answers[0], greeting)
	c.refused(answers[3])
}

// C2: a grant through a link is for the socket that the link points to, even if the
// link is changed later.
func linkedSocket(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	c.listen("unix", elsewhere+"/s")
	c.listen("unix", elsewhere+"/t")
	c.must(os.Symlink(elsewhere+"/s", elsewhere+"/link"))
	b := c.box(policy.AllowSocket(elsewhere + "/link"))
	b.workspace = ws
	answers := b.during(func() {
		c.must(os.Remove(elsewhere + "/link"))
		c.must(os.Symlink(elsewhere+"/t", elsewhere+"/link"))
	}, []op{dial(elsewhere + "/s")}, []op{dial(elsewhere + "/s"), dial(elsewhere + "/t"), fromTo("symlink", elsewhere+"/t", ws+"/l"), dial(ws + "/l")})
	c.reads(answers[0], greeting)
	c.reads(answers[3], greeting)
	c.refused(answers[4], answers[6])
}

// C2: a hidden socket cannot be reached through a descriptor of its path. A granted one
// can.
func socketByDescriptor(c *check) {
	short := c.shortDir()
	ws := c.dir(short, "ws")
	c.listen("unix", ws+"/granted")
	c.listen("unix", ws+"/hidden")
	b := c.box(policy.AllowSocket(ws + "/granted"))
	b.workspace = ws
	answers := b.do(on("connectfd", ws+"/granted"), on("connectfd", ws+"/hidden"), on("connectfd", "/proc/self/cwd/hidden"))
	c.reads(answers[0], greeting)
	c.refused(answers[1:]...)
}

// C2: a datagram socket is granted and hidden like any other.
func grantedDatagram(c *check) {
	short := c.shortDir()
	ws := c.dir(short, "ws")
	granted, hidden := c.receive(ws+"/granted"), c.receive(ws+"/hidden")
	b := c.box(policy.AllowSocket(ws + "/granted"))
	b.workspace = ws
	send := func(name string) op {
		return datagram("unixgram", ws+"/"+name, "x")
	}
	answers := b.do(send("granted"), send("hidden"))
	c.allowed(answers[0])
	c.refused(answers[1])
	for p, want := range map[net.PacketConn]int{granted: 1, hidden: 0} {
		c.must(p.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		if n, _, _ := p.ReadFrom(make([]byte, 8)); n != want {
			c.Errorf("%s received %d bytes, want %d", p.LocalAddr(), n, want)
		}
	}
}

// receive makes a datagram socket on the host.
func (c *check) receive(at string) net.PacketConn {
	p, err := net.ListenPacket("unixgram", at)
	c.must(err)
	c.cleanup(func() { _ = p.Close() })
	return p
}

// deaf fails the case if a socket has received something.
func (c *check) deaf(p net.PacketConn) {
	c.must(p.SetReadDeadline(time.Now().Add(50 * time.Millisecond)))
	if n, _, _ := p.ReadFrom(make([]byte, 8)); n != 0 {
		c.Errorf("%s received %d bytes", p.LocalAddr(), n)
	}
}

// C2: nothing can be sent to a datagram socket that the host makes while the command
// runs, connected or not.
func laterDatagram(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	b := c.box(policy.AllowRead(elsewhere))
	b.workspace = ws
	var made []net.PacketConn
	send := func(p string) op { return datagram("unixgram", p, "x") }
	answers := b.during(func() {
		made = append(made, c.receive(ws+"/later"), c.receive(elsewhere+"/later"))
	}, nil, []op{
		on("send", ws+"/later"), on("send", elsewhere+"/later"), on("send", "/proc/self/cwd/later"), send(ws + "/later"), send(elsewhere + "/later"),
	})
	c.refused(answers[2:]...)
	for _, p := range made {
		c.deaf(p)
	}
}

// C2: in mode host, too, sockets with a path are hidden, existing ones and later ones,
// and a granted one can be reached.
func hostNetworkSockets(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	c.listen("unix", elsewhere+"/there")
	c.listen("unix", elsewhere+"/granted")
	b := c.box(policy.AllowRead(elsewhere), policy.AllowSocket(elsewhere+"/granted"), policy.WithNetwork(policy.NetworkHost))
	b.workspace = ws
	answers := b.during(func() {
		c.listen("unix", elsewhere+"/later")
		c.listen("unix", ws+"/later")
	}, nil, []op{
		dial(elsewhere + "/granted"), {Do: "talk", Path: "unix", To: text(ws + "/own"), Data: greeting},
		dial(elsewhere + "/there"), dial(elsewhere + "/later"), dial(ws + "/later"), on("connectfd", ws+"/later"), on("send", ws+"/later"),
	})
	c.reads(answers[2], greeting)
	c.reads(answers[3], greeting)
	c.refused(answers[4:]...)
}
