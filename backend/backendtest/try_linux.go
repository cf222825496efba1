package backendtest

import (
	"encoding/json"
	"syscall"

	"github.com/cloche-dev/cloche"
)

// probe prepares the probe as the command.
func (b *box) probe(ops ...op) *cloche.Cmd {
	name, args := b.c.probeArgs(ops...)
	return b.command(name, args...)
}

// do tries things inside, one after the other, and returns how each went.
func (b *box) do(ops ...op) []answer {
	r, err := b.capture(b.probe(ops...))
	if err != nil {
		b.c.Fatalf("the probe did not run: %v", err)
	}
	return b.c.answers(r, ops)
}

func (c *check) answers(r *cloche.Result, ops []op) []answer {
	var answers []answer
	if err := json.Unmarshal(r.Stdout, &answers); err != nil || !r.Success() || len(answers) != len(ops) {
		c.Fatalf("the probe ended with %d (signal %q, timed out %v, exceeded %q): %s%s", r.ExitCode, r.Signal, r.TimedOut, r.Exceeded, r.Stdout, r.Stderr)
	}
	for i := range answers {
		answers[i].Op = ops[i]
	}
	return answers
}

// refused fails the case for each attempt that worked.
func (c *check) refused(answers ...answer) {
	for _, a := range answers {
		if a.ok() {
			c.Errorf("%s worked inside (%q %q)", a.Op, a.Data, a.List)
		}
	}
}

// refusedWith fails the case unless each attempt failed in that way.
func (c *check) refusedWith(errno syscall.Errno, answers ...answer) {
	for _, a := range answers {
		if a.Errno != errno {
			c.Errorf("%s inside: %q, want %q", a.Op, a.Error, errno)
		}
	}
}

// allowed fails the case for each attempt that did not work.
func (c *check) allowed(answers ...answer) {
	for _, a := range answers {
		if !a.ok() {
			c.Errorf("%s failed inside: %s", a.Op, a.Error)
		}
	}
}

// reads fails the case unless the attempt read the text.
func (c *check) reads(a answer, want string) {
	if !a.ok() || string(a.Data) != want {
		c.Errorf("%s inside gave %q (%s), want %q", a.Op, a.Data, a.Error, want)
	}
}

// The attempts that many cases make.

func read(p string) op          { return op{Do: "read", Path: text(p)} }
func list(p string) op          { return op{Do: "list", Path: text(p)} }
func write(p, data string) op   { return op{Do: "write", Path: text(p), Data: text(data)} }
func create(p string) op        { return op{Do: "create", Path: text(p), N: 0o644} }
func on(do, p string) op        { return op{Do: do, Path: text(p)} }
func fromTo(do, p, q string) op { return op{Do: do, Path: text(p), To: text(q)} }
