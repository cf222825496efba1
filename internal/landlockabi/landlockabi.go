// Package landlockabi describes what the kernel's Landlock can deny, by its ABI: the numbers
// of the rights and the struct of a ruleset. It makes no system calls; package program has the
// steps that make a ruleset.
package landlockabi

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// The rights over files. A ruleset denies each right that it handles, unless a rule allows it.
// Rights up to MakeSym are in ABI 1 (Linux 5.13).
const (
	Execute uint64 = 1 << iota
	WriteFile
	ReadFile
	ReadDir
	RemoveDir
	RemoveFile
	MakeChar
	MakeDir
	MakeReg
	MakeSock
	MakeFifo
	MakeBlock
	MakeSym
	// Refer is moving and linking between folders, which a ruleset without it always denies:
	// ABI 2, Linux 5.19.
	Refer
	Truncate    // ABI 3, Linux 6.2
	IoctlDev    // ABI 5, Linux 6.10
	ResolveUnix // connect to sockets made outside: ABI 9, Linux 7.1
)

var fileNames = []string{
	"execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file", "make_char", "make_dir", "make_reg",
	"make_sock", "make_fifo", "make_block", "make_sym", "refer", "truncate", "ioctl_dev", "resolve_unix",
}

// The rights over ports.
const (
	BindTCP        uint64 = 1 << iota // ABI 4, Linux 6.7
	ConnectTCP                        // ABI 4
	BindUDP                           // ABI 10
	ConnectSendUDP                    // ABI 10
)

var netNames = []string{"bind_tcp", "connect_tcp", "bind_udp", "connect_send_udp"}

// The scopes of a domain, which deny access to what is outside of it: ABI 6, Linux 6.12.
const (
	ScopeAbstractUnix uint64 = 1 << iota
	ScopeSignal
)

var scopeNames = []string{"abstract_unix_socket", "signal"}

// The ABIs that make a difference to what is enforced.
const (
	ABIRefer    = 2
	ABITruncate = 3
	ABITCP      = 4
	ABIIoctl    = 5
	ABIScope    = 6
	ABIUnix     = 9
	ABIUDP      = 10
)

const (
	// ForRead are the rights for reading, including executing programs.
	ForRead = Execute | ReadFile | ReadDir
	// OfFiles are the rights that the kernel accepts for files that are not folders.
	OfFiles = Execute | WriteFile | ReadFile | Truncate | IoctlDev | ResolveUnix
)

// A Ruleset is the attribute of landlock_create_ruleset: what is denied unless a rule allows
// it.
type Ruleset struct {
	FS, Net, Scoped uint64
}

// Handled returns everything that a kernel with that ABI can deny. A newer ABI can deny more,
// which cloche does not know.
func Handled(abi int) Ruleset {
	r := Ruleset{FS: MakeSym<<1 - 1}
	for _, step := range []struct {
		abi int
		add Ruleset
	}{
		{ABIRefer, Ruleset{FS: Refer}},
		{ABITruncate, Ruleset{FS: Truncate}},
		{ABITCP, Ruleset{Net: BindTCP | ConnectTCP}},
		{ABIIoctl, Ruleset{FS: IoctlDev}},
		{ABIScope, Ruleset{Scoped: ScopeAbstractUnix | ScopeSignal}},
		{ABIUnix, Ruleset{FS: ResolveUnix}},
		{ABIUDP, Ruleset{Net: BindUDP | ConnectSendUDP}},
	} {
		if abi >= step.abi {
			r.FS, r.Net, r.Scoped = r.FS|step.add.FS, r.Net|step.add.Net, r.Scoped|step.add.Scoped
		}
	}
	return r
}

// Bytes returns the struct landlock_ruleset_attr. Older kernels accept fields that they do not
// know if these are zero.
func (r Ruleset) Bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, r.FS)
	b = binary.LittleEndian.AppendUint64(b, r.Net)
	return binary.LittleEndian.AppendUint64(b, r.Scoped)
}

// String returns the names of all rights in the ruleset.
func (r Ruleset) String() string {
	return fmt.Sprintf("{fs=%s, net=%s, scoped=%s}", names(r.FS, fileNames), names(r.Net, netNames), names(r.Scoped, scopeNames))
}

// FileRights returns the names of a set of rights over files.
func FileRights(set uint64) string { return names(set, fileNames) }

func names(set uint64, list []string) string {
	var out []string
	for i, name := range list {
		if set&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, "|")
}
