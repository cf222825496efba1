package landlock

import (
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/policy"
)

// The rights over files. A ruleset denies each right that it handles wherever no
// rule allows it. Rights up to makeSym came with ABI 1 (Linux 5.13).
const (
	fsExecute uint64 = 1 << iota
	fsWriteFile
	fsReadFile
	fsReadDir
	fsRemoveDir
	fsRemoveFile
	fsMakeChar
	fsMakeDir
	fsMakeReg
	fsMakeSock
	fsMakeFifo
	fsMakeBlock
	fsMakeSym
	fsRefer       // ABI 2, Linux 5.19: to move and link between folders
	fsTruncate    // ABI 3, Linux 6.2
	fsIoctlDev    // ABI 5, Linux 6.10
	fsResolveUnix // ABI 9, Linux 7.1: to connect to sockets made outside
)

var fsNames = []string{
	"execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file", "make_char", "make_dir", "make_reg",
	"make_sock", "make_fifo", "make_block", "make_sym", "refer", "truncate", "ioctl_dev", "resolve_unix",
}

// The rights over ports.
const (
	netBindTCP        uint64 = 1 << iota // ABI 4, Linux 6.7
	netConnectTCP                        // ABI 4
	netBindUDP                           // ABI 10
	netConnectSendUDP                    // ABI 10
)

var netNames = []string{"bind_tcp", "connect_tcp", "bind_udp", "connect_send_udp"}

// What a domain can be closed to: ABI 6, Linux 6.12.
const (
	scopeAbstractUnix uint64 = 1 << iota
	scopeSignal
)

var scopeNames = []string{"abstract_unix_socket", "signal"}

// The ABIs that make a difference to what is enforced.
const (
	abiRefer    = 2
	abiTruncate = 3
	abiTCP      = 4
	abiIoctl    = 5
	abiScope    = 6
	abiUnix     = 9
	abiUDP      = 10
)

// A ruleset is the attribute of landlock_create_ruleset: what is denied unless
// a rule allows it.
type ruleset struct {
	fs, net, scoped uint64
}

// handled is everything that a kernel of that ABI can deny. A newer ABI than
// these can deny more, which cloche does not know of.
func handled(abi int) ruleset {
	r := ruleset{fs: fsMakeSym<<1 - 1}
	for _, step := range []struct {
		abi int
		add ruleset
	}{
		{abiRefer, ruleset{fs: fsRefer}},
		{abiTruncate, ruleset{fs: fsTruncate}},
		{abiTCP, ruleset{net: netBindTCP | netConnectTCP}},
		{abiIoctl, ruleset{fs: fsIoctlDev}},
		{abiScope, ruleset{scoped: scopeAbstractUnix | scopeSignal}},
		{abiUnix, ruleset{fs: fsResolveUnix}},
		{abiUDP, ruleset{net: netBindUDP | netConnectSendUDP}},
	} {
		if abi >= step.abi {
			r.fs, r.net, r.scoped = r.fs|step.add.fs, r.net|step.add.net, r.scoped|step.add.scoped
		}
	}
	return r
}

const (
	// forRead is what reading means, programs included.
	forRead = fsExecute | fsReadFile | fsReadDir
	// forWrite is all that a tree can be used for. Device nodes are left out, as
	// is talking to devices: a writable folder is a place for files.
	forWrite = forRead | fsWriteFile | fsTruncate | fsRemoveDir | fsRemoveFile | fsRefer |
		fsMakeDir | fsMakeReg | fsMakeSock | fsMakeFifo | fsMakeSym
	// forDevice is what the harmless devices need, a terminal among them.
	forDevice = fsReadFile | fsWriteFile | fsIoctlDev
	// ofFiles are the rights that the kernel takes for something that is not a
	// folder.
	ofFiles = fsExecute | fsWriteFile | fsReadFile | fsTruncate | fsIoctlDev | fsResolveUnix
)

// rightsFor are the rights that an access to something of a kind comes to.
func rightsFor(a policy.Access, k host.Kind) uint64 {
	rights := uint64(0)
	switch {
	case a == policy.Hidden:
	case k == host.Socket:
		rights = fsResolveUnix
	case a == policy.Write:
		rights = forWrite
	default:
		rights = forRead
	}
	if k != host.Dir {
		rights &= ofFiles
	}
	return rights
}

// names spells a set of rights out.
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
