package backendtest

import (
	"encoding/json"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/prober"
)

// probe prepares the probe as the command.
func (b *box) probe(ops ...op) *cloche.Cmd {
	name, args := b.c.probeArgs(ops...)
	return b.command(name, args...)
}

// do makes attempts inside, one after the other, and returns the answers.
func (b *box) do(ops ...op) []answer {
	r, err := b.capture(b.probe(ops...))
	if err != nil {
		b.c.Fatalf("the probe did not run: %v", err)
	}
	return b.c.answers(r, ops)
}

func (c *check) answers(r *cloche.Result, ops []op) []answer {
	var got []prober.Answer
	if err := json.Unmarshal(r.Stdout, &got); err != nil || !r.Success() || len(got) != len(ops) {
		c.Fatalf("the probe ended with %d (signal %q, timed out %v, exceeded %q): %s%s", r.ExitCode, r.Signal, r.TimedOut, r.Exceeded, r.Stdout, r.Stderr)
	}
	answers := make([]answer, len(got))
	for i := range got {
		answers[i] = answer{got[i], ops[i]}
	}
	return answers
}

// refused fails the case for each attempt that succeeded.
func (c *check) refused(answers ...answer) {
	for _, a := range answers {
		if a.OK() {
			c.Errorf("%s worked inside (%q %q)", a.op, a.Data, a.List)
		}
	}
}

// refusedWith fails the case unless each attempt failed with the error.
func (c *check) refusedWith(errno syscall.Errno, answers ...answer) {
	for _, a := range answers {
		if a.Errno != errno {
			c.Errorf("%s inside: %q, want %q", a.op, a.Error, errno)
		}
	}
}

// allowed fails the case for each attempt that failed.
func (c *check) allowed(answers ...answer) {
	for _, a := range answers {
		if !a.OK() {
			c.Errorf("%s failed inside: %s", a.op, a.Error)
		}
	}
}

// reads fails the case unless the attempt read the text.
func (c *check) reads(a answer, want string) {
	if !a.OK() || string(a.Data) != want {
		c.Errorf("%s inside gave %q (%s), want %q", a.op, a.Data, a.Error, want)
	}
}

// The attempts that many cases make.

func on(do, p string) op        { return op{Do: do, Path: text(p)} }
func fromTo(do, p, q string) op { return op{Do: do, Path: text(p), To: text(q)} }
func read(p string) op          { return on("read", p) }
func list(p string) op          { return on("read", p) }
func chmod(p string, mode int64) op {
	return op{Do: "chmod", Path: text(p), N: mode}
}

// write opens a file for writing, creates it if necessary, and writes the data.
func write(p, data string) op {
	return op{Do: "open", Path: text(p), N: unix.O_WRONLY | unix.O_CREAT, M: 0o644, Data: text(data)}
}

// create creates a file that must not exist.
func create(p string) op { return createMode(p, 0o644) }

func createMode(p string, mode int64) op {
	return op{Do: "open", Path: text(p), N: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, M: mode}
}

func exchange(p, q string) op {
	return op{Do: "rename", Path: text(p), To: text(q), N: unix.RENAME_EXCHANGE}
}

func umount(p string) op { return op{Do: "umount", Path: text(p), N: unix.MNT_DETACH} }

func remount(p string) op {
	return op{Do: "mount", Path: text(p), N: unix.MS_REMOUNT | unix.MS_BIND}
}

// How long connecting may take, in milliseconds. briefly is for many connections that
// nobody should answer.
const (
	patiently = 5000
	briefly   = 500
)

// dialIn connects in a network, and reads the greeting.
func dialIn(network, address string) op {
	return op{Do: "dial", Path: text(network), To: text(address), N: patiently, M: 1}
}

func dial(p string) op         { return dialIn("unix", p) }
func dialTCP(a net.Addr) op    { return dialIn("tcp", a.String()) }
func dialBriefly(to string) op { o := dialIn("tcp", to); o.N = briefly; return o }

// datagram sends a datagram.
func datagram(network, address, data string) op {
	return op{Do: "dial", Path: text(network), To: text(address), Data: text(data)}
}
