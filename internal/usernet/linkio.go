//go:build linux

package usernet

import (
	"encoding/binary"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A reader reads packets. A large packet is handed on in the buffer that it was
// read into; a small one is copied, so that it does not hold a large buffer.
type reader struct {
	*endpoint
	header [maxLinkHeader]byte
	view   *buffer.View
	iov    [2]unix.Iovec
	err    error
}

// keepSize is from which size on a packet keeps its buffer of 64 KiB: what a
// connection holds is at most about twice what it is charged for.
const keepSize = 32 << 10

// readAll reads and handles packets until the file is closed or fails.
func (e *endpoint) readAll() error {
	defer close(e.done)
	r := &reader{endpoint: e}
	defer func() {
		if r.view != nil {
			r.view.Release()
		}
	}()
	err := e.raw.Read(r.drain)
	return errors.Join(err, r.err)
}

// drain reads until nothing is left, and returns true at the end of the link. A
// sandbox that never stops sending does not keep the link from being closed.
func (r *reader) drain(uintptr) bool {
	for !r.closed.Load() {
		n, err := r.read()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
			// A packet socket reports once that its interface went down.
			continue
		case err != nil || n == 0:
			r.err = err
			return true
		}
		r.handle(n)
	}
	return true
}

// read reads one packet, the headers of the link into r.header.
func (r *reader) read() (int, error) {
	if r.view == nil {
		r.view = buffer.NewViewSize(maxPacket)
	}
	space := r.view.AsSlice()
	iov := r.iov[:0]
	if n := r.headerSize(); n > 0 {
		iov = append(iov, iovec(r.header[:n]))
	}
	iov = append(iov, iovec(space))
	return vector(unix.SYS_READV, r.fd, iov)
}

// handle decides about the packet of n bytes that was just read.
func (r *reader) handle(n int) {
	size := r.headerSize()
	if n < size {
		return
	}
	b := r.view.AsSlice()[:n-size]
	if r.ethernet != nil && !r.addressed(b) {
		return
	}
	packet, proto, a := r.filter.inspect(b)
	switch a {
	case refuse:
		r.writeRaw(controlMessage(packet, noProtocol))
	case accept:
		r.acknowledgeFirst(packet, proto)
		r.deliver(r.take(len(packet)), proto)
	}
}

// addressed reports whether the frame holds a packet for the stack. Questions
// about addresses are answered.
func (r *reader) addressed(packet []byte) bool {
	eth := header.Ethernet(r.header[r.headerSize()-header.EthernetMinimumSize:])
	answer, ok := r.ethernet.inspect(eth.Type(), packet)
	if answer != nil {
		r.writeFrame(answer)
	}
	return ok
}

// take returns a view of the first n bytes that were read.
func (r *reader) take(n int) *buffer.View {
	if n < keepSize {
		return buffer.NewViewWithData(r.view.AsSlice()[:n])
	}
	view := r.view
	r.view = nil
	view.CapLength(n)
	return view
}

// WritePackets implements stack.LinkEndpoint.
func (e *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, pkt := range list.AsSlice() {
		if isSynAck(pkt) {
			e.writeLater(pkt.Clone())
		} else if err := e.writePacket(pkt); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// isSynAck reports whether a packet accepts a connection.
func isSynAck(pkt *stack.PacketBuffer) bool {
	if pkt.TransportProtocolNumber != header.TCPProtocolNumber {
		return false
	}
	segment := header.TCP(pkt.TransportHeader().Slice())
	return len(segment) >= header.TCPMinimumSize && segment.Flags().Contains(header.TCPFlagSyn|header.TCPFlagAck)
}

// writeLater writes a packet that the stack sends with the connection locked.
// The client's answer is there before the system call returns, and the stack
// would spend the time until then trying to lock the connection again.
func (e *endpoint) writeLater(pkt *stack.PacketBuffer) {
	e.late.Go(func() {
		e.writePacket(pkt)
		pkt.DecRef()
	})
}

// writePacket writes a packet of the stack. TCP segments get their checksum
// from the kernel, should anyone ever need it.
func (e *endpoint) writePacket(pkt *stack.PacketBuffer) tcpip.Error {
	var head [maxLinkHeader]byte
	size := e.headerSize()
	if e.ethernet != nil {
		e.ethernet.fillHeader(head[size-header.EthernetMinimumSize:], pkt.NetworkProtocolNumber)
	}
	if e.offload && pkt.TransportProtocolNumber == header.TCPProtocolNumber {
		leaveChecksum(pkt, head[:vnetSize], size-vnetSize)
	}
	slices := pkt.AsSlices()
	iov := make([]unix.Iovec, 0, 8)
	if size > 0 {
		iov = append(iov, iovec(head[:size]))
	}
	for _, s := range slices {
		if len(s) > 0 {
			iov = append(iov, iovec(s))
		}
	}
	return e.write(iov)
}

// The fields of a virtio_net_hdr, in the byte order of the machine.
const (
	vnetFlags      = 0
	vnetStart      = 6
	vnetOffset     = 8
	vnetNeedsSum   = 1
	tcpSumPosition = header.TCPChecksumOffset
)

// leaveChecksum marks in the header that the checksum of a TCP segment is the
// kernel's to complete. The sum of the pseudo header is ours.
func leaveChecksum(pkt *stack.PacketBuffer, vnet []byte, linkHeader int) {
	network, tcp := pkt.Network(), header.TCP(pkt.TransportHeader().Slice())
	if len(tcp) < header.TCPMinimumSize {
		return
	}
	size := len(tcp) + pkt.Data().Size()
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, network.SourceAddress(), network.DestinationAddress(), uint16(size))
	tcp.SetChecksum(sum)
	vnet[vnetFlags] = vnetNeedsSum
	start := linkHeader + len(pkt.NetworkHeader().Slice())
	binary.NativeEndian.PutUint16(vnet[vnetStart:], uint16(start))
	binary.NativeEndian.PutUint16(vnet[vnetOffset:], tcpSumPosition)
}

// writeRaw writes a finished IP packet.
func (e *endpoint) writeRaw(packet []byte) {
	if len(packet) == 0 {
		return
	}
	if e.ethernet == nil {
		e.writeFrame(packet)
		return
	}
	frame := make([]byte, header.EthernetMinimumSize+len(packet))
	proto := header.IPv4ProtocolNumber
	if packet[0]>>4 == header.IPv6Version {
		proto = header.IPv6ProtocolNumber
	}
	e.ethernet.fillHeader(frame, proto)
	copy(frame[header.EthernetMinimumSize:], packet)
	e.writeFrame(frame)
}

// writeFrame writes what the link carries: frames, or packets if it has none.
func (e *endpoint) writeFrame(frame []byte) {
	var none [vnetSize]byte
	iov := make([]unix.Iovec, 0, 2)
	if e.offload {
		iov = append(iov, iovec(none[:]))
	}
	e.write(append(iov, iovec(frame)))
}

// A writer that finds the buffer of a packet socket full waits this often and
// long before the packet is lost.
const (
	writeTries = 20
	writeWait  = 5 * time.Millisecond
)

func (e *endpoint) write(iov []unix.Iovec) tcpip.Error {
	e.writing.RLock()
	defer e.writing.RUnlock()
	if e.closed.Load() {
		return &tcpip.ErrClosedForSend{}
	}
	for range writeTries {
		_, err := vector(unix.SYS_WRITEV, e.fd, iov)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			fds := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLOUT}}
			_, _ = unix.Poll(fds, int(writeWait.Milliseconds()))
		default:
			// Lost, as on any network: the interface is down or the packet is
			// too large for it.
			return nil
		}
	}
	return &tcpip.ErrNoBufferSpace{}
}

func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

// vector is readv or writev of iovecs that are already made.
func vector(call uintptr, fd int, iov []unix.Iovec) (int, error) {
	n, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
