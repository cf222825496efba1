//go:build linux

package usernet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A Link is the other end of a sandbox's network interface.
type Link struct {
	// File is a TUN device without packet information (IFF_NO_PI), or a packet socket
	// (AF_PACKET, SOCK_RAW) bound to one end of a veth pair. It must be non-blocking. The
	// stack closes it.
	File *os.File
	// MTU is that of the interface, at most 65535.
	MTU int
	// Ethernet says that File is a packet socket. MAC is this side's address and Peer the
	// sandbox's.
	Ethernet  bool
	MAC, Peer net.HardwareAddr
	// Addrs are the sandbox's addresses. Packets from other addresses are dropped.
	Addrs []netip.Addr
	// Gateways are the addresses that answer echo requests, and nothing else.
	Gateways []netip.Addr
}

func (l *Link) check() error {
	switch {
	case l.File == nil:
		return errors.New("user-mode network: there is no link")
	case l.MTU < header.IPv6MinimumMTU || l.MTU > maxPacket:
		return fmt.Errorf("user-mode network: MTU %d is not between %d and %d", l.MTU, header.IPv6MinimumMTU, maxPacket)
	case l.Ethernet && (len(l.MAC) != header.EthernetAddressSize || len(l.Peer) != header.EthernetAddressSize):
		return errors.New("user-mode network: an Ethernet link needs the addresses of both sides")
	case len(l.Addrs) == 0:
		return errors.New("user-mode network: the sandbox has no address")
	}
	if err := l.File.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("user-mode network: %s has to be opened with O_NONBLOCK: %w", l.File.Name(), err)
	}
	return nil
}

const (
	// maxPacket is the largest IP packet.
	maxPacket = 65535
	// vnetSize is the size of a virtio_net_hdr.
	vnetSize = 10
	// maxLinkHeader is the largest header before the packet.
	maxLinkHeader = vnetSize + header.EthernetMinimumSize
)

// An endpoint is the link as the stack sees it: a device for IP packets. It replaces
// gVisor's own endpoint for descriptors, which has no filter and does not use Go's
// poller.
type endpoint struct {
	*channel.Endpoint // used to deliver packets to the stack, and for methods without an effect
	file              *os.File
	raw               syscall.RawConn
	fd                int
	ethernet          *ethernet // nil: bare IP
	filter            filter
	offload           bool // packets begin with a virtio_net_hdr, and the kernel computes checksums

	// writing is locked for reading by writers, and for writing to close the file.
	writing sync.RWMutex
	closed  atomic.Bool
	late    sync.WaitGroup                       // packets that other goroutines still write
	opening func(stack.TransportEndpointID) bool // reports whether the handshake of a connection is incomplete
	done    chan struct{}                        // closed when reading has ended
}

func newEndpoint(l *Link) (*endpoint, error) {
	raw, err := l.File.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("user-mode network: %w", err)
	}
	e := &endpoint{
		Endpoint: channel.New(0, uint32(l.MTU), ""), file: l.File, raw: raw,
		filter: filter{own: l.Addrs}, done: make(chan struct{}),
	}
	if l.Ethernet {
		e.ethernet = &ethernet{mac: tcpip.LinkAddress(l.MAC), peer: tcpip.LinkAddress(l.Peer), own: l.Addrs}
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		e.fd = int(fd)
		e.offload, failed = configure(e.fd, l.Ethernet)
	})
	return e, errors.Join(err, failed)
}

// configure sets the options of the descriptor. It reports whether packets have a
// virtio_net_hdr. With it, neither the kernel nor the stack computes checksums for
// packets that never leave this machine.
func configure(fd int, packetSocket bool) (offload bool, err error) {
	if packetSocket {
		// Ignore the frames that the kernel sends on this end. Since Linux 4.20.
		_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		// The queue of an interface that has just come up drops packets for a
		// while: the first answer would be lost.
		_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		// A larger burst would be lost. The kernel limits the size.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, packetBuffer)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, packetBuffer)
		err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
		return err == nil, nil
	}
	ifr, err := unix.NewIfreq("")
	if err != nil {
		return false, err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); err != nil {
		return false, fmt.Errorf("user-mode network: ask the TUN device for its flags: %w", err)
	}
	if ifr.Uint16()&unix.IFF_VNET_HDR == 0 {
		return false, nil
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM); err != nil {
		return false, fmt.Errorf("user-mode network: leave checksums out on the TUN device: %w", err)
	}
	return true, nil
}

// packetBuffer is the buffer size that is requested for a packet socket.
const packetBuffer = 4 << 20

// headerSize returns the size of the header before each packet.
func (e *endpoint) headerSize() int {
	n := 0
	if e.offload {
		n += vnetSize
	}
	if e.ethernet != nil {
		n += header.EthernetMinimumSize
	}
	return n
}

// Close implements stack.LinkEndpoint. It ends reading and writing. It closes the file
// without holding the lock, because closing waits for the reader, which may be about to
// write.
func (e *endpoint) Close() {
	e.writing.Lock()
	e.closed.Store(true)
	e.writing.Unlock()
	e.file.Close()
	e.late.Wait()
}

// Capabilities implements stack.LinkEndpoint. Received checksums are not verified: the
// packets never left this machine.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	c := stack.CapabilityRXChecksumOffload
	if e.offload {
		c |= stack.CapabilityTXChecksumOffload
	}
	return c
}

// Wait implements stack.LinkEndpoint.
func (e *endpoint) Wait() { <-e.done }

// deliver hands a packet to the stack.
func (e *endpoint) deliver(view *buffer.View, proto tcpip.NetworkProtocolNumber) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(view)})
	e.InjectInbound(proto, pkt)
	pkt.DecRef()
}

// A reader reads packets. A large packet keeps the buffer into which it was read; a
// small one is copied.
type reader struct {
	*endpoint
	header [maxLinkHeader]byte
	view   *buffer.View
	err    error
}

// keepSize is the smallest packet that keeps its 64 KiB buffer. With it, a connection
// uses at most about twice the memory that it is charged for.
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

// drain reads until nothing is left. It returns true when the link has ended.
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

// read reads one packet, and its link headers into r.header.
func (r *reader) read() (int, error) {
	if r.view == nil {
		r.view = buffer.NewViewSize(maxPacket)
	}
	return unix.Readv(r.fd, [][]byte{r.header[:r.headerSize()], r.view.AsSlice()})
}

// handle processes the packet of n bytes that was just read.
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

// addressed reports whether the frame has a packet for the stack. It answers address
// requests itself.
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

// isSynAck reports whether a packet accepts a connection (SYN and ACK).
func isSynAck(pkt *stack.PacketBuffer) bool {
	if pkt.TransportProtocolNumber != header.TCPProtocolNumber {
		return false
	}
	segment := header.TCP(pkt.TransportHeader().Slice())
	return len(segment) >= header.TCPMinimumSize && segment.Flags().Contains(header.TCPFlagSyn|header.TCPFlagAck)
}

// writeLater writes, in another goroutine, a packet that the stack sends while it has
// locked the connection. The client's answer arrives before the system call returns,
// and delivering it needs the same lock.
func (e *endpoint) writeLater(pkt *stack.PacketBuffer) {
	e.late.Go(func() {
		e.writePacket(pkt)
		pkt.DecRef()
	})
}

// writePacket writes a packet of the stack. It leaves the checksum of a TCP segment to
// the kernel, which computes it only if it is needed.
func (e *endpoint) writePacket(pkt *stack.PacketBuffer) tcpip.Error {
	var head [maxLinkHeader]byte
	size := e.headerSize()
	if e.ethernet != nil {
		e.ethernet.fillHeader(head[size-header.EthernetMinimumSize:], pkt.NetworkProtocolNumber)
	}
	if e.offload && pkt.TransportProtocolNumber == header.TCPProtocolNumber {
		leaveChecksum(pkt, head[:vnetSize], size-vnetSize)
	}
	return e.write(append([][]byte{head[:size]}, pkt.AsSlices()...))
}

// The fields of a virtio_net_hdr, in the byte order of the machine.
const (
	vnetFlags      = 0
	vnetStart      = 6
	vnetOffset     = 8
	vnetNeedsSum   = 1
	tcpSumPosition = header.TCPChecksumOffset
)

// leaveChecksum makes the kernel complete the checksum of a TCP segment. The segment
// already has the sum of the pseudo header.
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

// writeFrame writes a frame, or, if the link has no frames, a packet.
func (e *endpoint) writeFrame(frame []byte) {
	var none []byte
	if e.offload {
		none = make([]byte, vnetSize)
	}
	e.write([][]byte{none, frame})
}

// If the buffer of a packet socket is full, a writer tries this often, and waits this
// long each time, before it drops the packet.
const (
	writeTries = 20
	writeWait  = 5 * time.Millisecond
)

func (e *endpoint) write(parts [][]byte) tcpip.Error {
	e.writing.RLock()
	defer e.writing.RUnlock()
	if e.closed.Load() {
		return &tcpip.ErrClosedForSend{}
	}
	for range writeTries {
		_, err := unix.Writev(e.fd, parts)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			fds := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLOUT}}
			_, _ = unix.Poll(fds, int(writeWait.Milliseconds()))
		default:
			// The packet is lost, as on any network: the interface is down, or the packet is too
			// large for it.
			return nil
		}
	}
	return &tcpip.ErrNoBufferSpace{}
}
