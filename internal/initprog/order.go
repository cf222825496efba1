package initprog

import "encoding/binary"

// An Order is the command for an init that waits for one: see Config.Await.
type Order struct {
	// Dir is the working folder, Path the program, both as seen inside. Args are
	// the arguments, with Args[0] the name, and Env is the environment.
	Dir, Path string
	Args, Env []string
	// Streams has a bit for each standard descriptor that is sent with the order. For the
	// others the command has those of the init.
	Streams uint32
}

// orderHead is the size of the header before the strings: the total size of the strings, the
// numbers of arguments and of variables, and Streams.
const orderHead = 16

// Bytes returns what is written to the socket. The standard descriptors of Streams are sent
// with the first byte, as SCM_RIGHTS. No string may contain a NUL.
func (o *Order) Bytes() []byte {
	size := len(o.Dir) + len(o.Path) + 2
	for _, list := range [][]string{o.Args, o.Env} {
		for _, s := range list {
			size += len(s) + 1
		}
	}
	b := make([]byte, 0, orderHead+size)
	for _, n := range [...]int{size, len(o.Args), len(o.Env), int(o.Streams)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = append(append(b, o.Dir...), 0)
	b = append(append(b, o.Path...), 0)
	for _, list := range [][]string{o.Args, o.Env} {
		for _, s := range list {
			b = append(append(b, s...), 0)
		}
	}
	return b
}
