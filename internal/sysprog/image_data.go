package sysprog

import (
	"encoding/binary"
	"slices"
)

func (im *Image) put(offset int, v uint64) { binary.LittleEndian.PutUint64(im.memory[offset:], v) }

func (im *Image) get(offset int) uint64 { return binary.LittleEndian.Uint64(im.memory[offset:]) }

// putAddress sets a word to the address that another offset will have.
func (im *Image) putAddress(offset, of int) {
	im.put(offset, uint64(of))
	im.addresses = append(im.addresses, offset)
}

// data appends bytes, aligned for any struct, and returns their offset.
func (im *Image) data(b []byte) int {
	offset := len(im.memory)
	im.memory = append(im.memory, b...)
	im.pad(len(b))
	return offset
}

// bytes is data for a string.
func (im *Image) bytes(s string) int {
	offset := len(im.memory)
	im.memory = append(im.memory, s...)
	im.pad(len(s))
	return offset
}

// pad adds padding after n bytes. Zero bytes get a word of their own.
func (im *Image) pad(n int) {
	var zeros [wordSize]byte
	padding := (wordSize - len(im.memory)%wordSize) % wordSize
	if n == 0 {
		padding = wordSize
	}
	im.memory = append(im.memory, zeros[:padding]...)
}

// words appends numbers and returns the offset of the first.
func (im *Image) words(list ...uint64) int {
	offset := len(im.memory)
	for _, v := range list {
		im.memory = binary.LittleEndian.AppendUint64(im.memory, v)
	}
	return offset
}

// text appends a string and its NUL.
func (im *Image) text(s string) int {
	offset := len(im.memory)
	im.memory = append(append(im.memory, s...), 0)
	im.pad(len(s) + 1)
	return offset
}

// filter appends a struct sock_fprog and the instructions it points to.
func (im *Image) filter(instructions string) int {
	offset := im.data(make([]byte, 2*wordSize))
	im.put(offset, uint64(len(instructions)/sizeofSockFilter))
	im.putAddress(offset+wordSize, im.bytes(instructions))
	return offset
}

// message appends a struct msghdr with the bytes and, in a struct cmsghdr, one
// descriptor.
func (im *Image) message(text string, fd uint32) int {
	const (
		sizeofHeader, sizeofControl = 7 * wordSize, 3 * wordSize
		atVector, atVectorLength    = 2 * wordSize, 3 * wordSize
		atControl, atControlLength  = 4 * wordSize, 5 * wordSize
	)
	vector := im.data(make([]byte, 2*wordSize))
	im.putAddress(vector, im.bytes(text))
	im.put(vector+wordSize, uint64(len(text)))

	control := im.data(make([]byte, sizeofControl))
	im.put(control, 2*wordSize+4) // the length without the padding
	im.put(control+wordSize, socketLevel|socketRights<<32)
	im.put(control+2*wordSize, uint64(fd))

	header := im.data(make([]byte, sizeofHeader))
	im.putAddress(header+atVector, vector)
	im.put(header+atVectorLength, 1)
	im.putAddress(header+atControl, control)
	im.put(header+atControlLength, sizeofControl)
	return header
}

// vector appends an array of addresses of strings, ended by NULL.
func (im *Image) vector(list []string) int {
	offset := im.data(make([]byte, (len(list)+1)*wordSize))
	for i, s := range list {
		im.putAddress(offset+i*wordSize, im.text(s))
	}
	return offset
}

// place fills in a copy of the image that will be at the address base: the addresses of its
// parts, and the numbers of the program's files and of the two ends of the rendezvous.
func (im *Image) place(memory []byte, base uint64, files []int, sync [2]int) {
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(memory[at:], v) }
	for _, at := range im.addresses {
		put(at, binary.LittleEndian.Uint64(memory[at:])+base)
	}
	for i := range im.files {
		number := sync[im.files[i].arg.Value&1]
		if im.files[i].arg.Kind == KindFile {
			number = files[im.files[i].arg.Value]
		}
		put(im.files[i].offset, uint64(number))
	}
	for i := range im.closing {
		keep := slices.Concat(im.closing[i].keep, files)
		if im.syncs {
			keep = append(keep, sync[:]...)
		}
		at := im.closing[i].offset + offsetArgs
		for _, r := range between(keep) { // records that are left over close nothing
			put(at, uint64(r[0]))
			put(at+wordSize, uint64(r[1]))
			at += sizeofRecord
		}
	}
}

// between returns the ranges of descriptors around those in keep.
func between(keep []int) (ranges [][2]int) {
	slices.Sort(keep)
	next := 0
	for _, fd := range append(keep, fdMax+1) {
		if fd > next {
			ranges = append(ranges, [2]int{next, fd - 1})
		}
		next = max(next, fd+1)
	}
	return ranges
}
