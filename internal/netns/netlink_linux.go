package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A batch is a list of rtnetlink requests that are sent together. The kernel
// acknowledges the last one, and reports each that fails.
type batch struct {
	bytes  []byte
	starts []int
	labels []string
	// optional marks the requests for IPv6, which a kernel can lack or refuse.
	optional []bool
}

// message begins a request; its attributes follow by attr.
func (b *batch) message(kind uint16, flags uint16, label string, body ...byte) {
	b.finish()
	b.starts = append(b.starts, len(b.bytes))
	b.labels = append(b.labels, label)
	b.optional = append(b.optional, false)
	head := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint16(head[4:], kind)
	binary.NativeEndian.PutUint16(head[6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(head[8:], uint32(len(b.starts)))
	b.bytes = append(b.bytes, head...)
	b.bytes = append(b.bytes, body...)
}

// ifOptional marks the last request as optional, if yes: it may then fail.
func (b *batch) ifOptional(yes bool) { b.optional[len(b.optional)-1] = yes }

// finish fills in the length of the last request.
func (b *batch) finish() {
	if len(b.starts) == 0 {
		return
	}
	start := b.starts[len(b.starts)-1]
	b.pad()
	binary.NativeEndian.PutUint32(b.bytes[start:], uint32(len(b.bytes)-start))
}

func (b *batch) pad() {
	for len(b.bytes)%unix.NLMSG_ALIGNTO != 0 {
		b.bytes = append(b.bytes, 0)
	}
}

// attr adds an attribute.
func (b *batch) attr(kind uint16, value []byte) {
	b.nested(kind, func() { b.bytes = append(b.bytes, value...) })
}

func (b *batch) attr32(kind uint16, v uint32) { b.attr(kind, binary.NativeEndian.AppendUint32(nil, v)) }

func (b *batch) attrText(kind uint16, s string) { b.attr(kind, append([]byte(s), 0)) }

// nested adds an attribute that contains the attributes that add adds.
func (b *batch) nested(kind uint16, add func()) {
	b.pad()
	at := len(b.bytes)
	b.bytes = append(b.bytes, 0, 0, 0, 0)
	add()
	binary.NativeEndian.PutUint16(b.bytes[at:], uint16(len(b.bytes)-at))
	binary.NativeEndian.PutUint16(b.bytes[at+2:], kind)
	b.pad()
}

// A requestError is a request that the kernel refused.
type requestError struct {
	label  string
	detail string // the kernel's text, if it has one
	errno  unix.Errno
}

// Error names the request.
func (e *requestError) Error() string {
	if e.detail != "" {
		return fmt.Sprintf("%s: %v (%s)", e.label, e.errno, e.detail)
	}
	return fmt.Sprintf("%s: %v", e.label, e.errno)
}

// Unwrap returns the error number.
func (e *requestError) Unwrap() error { return e.errno }

// send sends the requests over a netlink socket. It returns the first error of a
// required request, and the first of an optional one. rtnetlink answers within the
// system call, so there is nothing to wait for.
func (b *batch) send(fd int) (err, optional error) {
	last := b.starts[len(b.starts)-1]
	flags := binary.NativeEndian.Uint16(b.bytes[last+6:]) | unix.NLM_F_ACK
	binary.NativeEndian.PutUint16(b.bytes[last+6:], flags)
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1) // only for better error texts
	}
	if err := b.transmit(fd); err != nil {
		return fmt.Errorf("rtnetlink: %w", err), nil
	}
	buffer := make([]byte, 8192)
	for {
		rest, recvErr := receive(fd, buffer)
		if recvErr != nil {
			return errors.Join(err, fmt.Errorf("rtnetlink: no answer: %w", recvErr)), optional
		}
		for len(rest) >= unix.SizeofNlMsghdr {
			var one []byte
			if one, rest = cut(rest); one == nil {
				break
			}
			index, refused := b.answer(one)
			switch {
			case refused != nil && b.optional[index] && optional == nil:
				optional = refused
			case refused != nil && !b.optional[index] && err == nil:
				err = refused
			}
			if index == len(b.starts)-1 {
				return err, optional
			}
		}
	}
}

// transmit writes the requests to a netlink socket.
func (b *batch) transmit(fd int) error {
	b.finish()
	return os.NewSyscallError("sendto", unix.Sendto(fd, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// receive reads what a netlink socket has, without waiting.
func receive(fd int, buffer []byte) ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, os.NewSyscallError("recvfrom", err)
		default:
			return buffer[:n], nil
		}
	}
}

// cut splits off the first message of b.
func cut(b []byte) (one, rest []byte) {
	size := int(binary.NativeEndian.Uint32(b))
	if size < unix.SizeofNlMsghdr || size > len(b) {
		return nil, nil
	}
	next := (size + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
	return b[:size], b[min(next, len(b)):]
}

// answer returns the index of the request that a message answers, and its error. The
// index is -1 if the message is not an answer.
func (b *batch) answer(m []byte) (index int, err error) {
	const code, size = unix.SizeofNlMsghdr, unix.SizeofNlMsghdr + unix.SizeofNlMsgerr
	index = int(binary.NativeEndian.Uint32(m[8:])) - 1
	if binary.NativeEndian.Uint16(m[4:]) != unix.NLMSG_ERROR || len(m) < size || index < 0 || index >= len(b.starts) {
		return -1, nil
	}
	errno := -int32(binary.NativeEndian.Uint32(m[code:]))
	if errno == 0 {
		return index, nil
	}
	return index, &requestError{label: b.labels[index], errno: unix.Errno(errno), detail: detailOf(m[size:])}
}

// detailOf returns the text of an extended acknowledgement.
func detailOf(b []byte) string {
	text, _ := attribute(b, 1) // NLMSGERR_ATTR_MSG
	return unix.ByteSliceToString(text)
}

// attribute returns one attribute of a list of netlink attributes.
func attribute(b []byte, want uint16) ([]byte, bool) {
	const typeMask = 0x3fff // NLA_TYPE_MASK
	for len(b) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		if kind&typeMask == want {
			return b[unix.SizeofRtAttr:size], true
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil, false
}
