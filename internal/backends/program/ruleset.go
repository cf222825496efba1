package program

import (
	"encoding/binary"
	"fmt"

	"github.com/cloche-dev/cloche/internal/landlockabi"
	"github.com/cloche-dev/cloche/internal/sysprog"
)

// A Ruleset is a Landlock ruleset that a program makes.
//
// The child makes it, not the supervisor. So it is a part of the program, which can be printed
// and compared, each path is looked up once, and no descriptor of the host's files has to be
// passed.
type Ruleset struct {
	// FD is its descriptor.
	FD sysprog.Arg
	// number is the descriptor number used for rules: the struct of a rule contains a number,
	// which has to be known in advance.
	number int
}

// NewRuleset makes a ruleset. The number must be unused; it is occupied at once, so that no
// later step gets it.
func NewRuleset(b sysprog.Block, attr landlockabi.Ruleset, number int) Ruleset {
	data := attr.Bytes()
	fd := b.CallResult("landlock_create_ruleset", sysprog.Bytes(data, attr.String()), sysprog.Const(uint64(len(data))), sysprog.Const(0))
	r := Ruleset{FD: fd, number: number}
	r.place(b, fd)
	return r
}

// Allow adds a rule that allows rights for the file of the descriptor and everything below it.
// The kernel rejects rights that the ruleset does not handle, rights for folders on a file,
// and a rule without rights.
func (r Ruleset) Allow(b sysprog.Block, fd sysprog.Arg, rights uint64) {
	r.place(b, fd)
	r.add(b, rights)
}

// AllowIfOpen is Allow for a descriptor that may be -1, because its path is gone.
func (r Ruleset) AllowIfOpen(b sysprog.Block, fd sysprog.Arg, rights uint64) {
	// If fd is -1, the number must not refer to the file before it. It refers to the ruleset
	// then, and the kernel returns EBADFD for such a rule.
	r.place(b, r.FD)
	r.place(b.Ignoring(sysprog.EBADF), fd)
	r.add(b.Ignoring(sysprog.EBADFD, sysprog.EINVAL), rights)
}

// Enter enforces the ruleset permanently. It needs no_new_privs.
func (r Ruleset) Enter(b sysprog.Block) { b.LandlockRestrictSelf(r.FD) }

// Send sends the ruleset over a unix socket.
func (r Ruleset) Send(b sysprog.Block, socket sysprog.Arg) {
	r.place(b, r.FD)
	b.SendFD(socket, r.number)
}

// place makes the number a copy of a descriptor.
func (r Ruleset) place(b sysprog.Block, fd sysprog.Arg) {
	const closeOnExec = 0x80000
	b.Call("dup3", fd, sysprog.FD(r.number), sysprog.Named(closeOnExec, "O_CLOEXEC"))
}

// add adds a rule with a struct landlock_path_beneath_attr, which is packed.
func (r Ruleset) add(b sysprog.Block, rights uint64) {
	attr := binary.LittleEndian.AppendUint64(nil, rights)
	attr = binary.LittleEndian.AppendUint32(attr, uint32(r.number))
	note := fmt.Sprintf("{allowed_access=%s, parent_fd=%d}", landlockabi.FileRights(rights), r.number)
	b.Call("landlock_add_rule", r.FD, sysprog.Named(1, "LANDLOCK_RULE_PATH_BENEATH"), sysprog.Bytes(attr, note), sysprog.Const(0))
}
