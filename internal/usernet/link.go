//go:build linux

package usernet

import (
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
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A Link is the other end of a sandbox's network interface.
type Link struct {
	// File is a TUN device without packet information (IFF_NO_PI), or a packet
	// socket (AF_PACKET, SOCK_RAW) bound to one end of a veth. It must not
	// block. The stack closes it.
	File *os.File
	// MTU is that of the interface, at most 65535.
	MTU int
	// Ethernet says that the file is a packet socket. MAC is this side's
	// address and Peer the sandbox's.
	Ethernet  bool
	MAC, Peer net.HardwareAddr
	// Addrs are the sandbox's addresses: what comes from others is dropped.
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
	// maxLinkHeader is what can come before the packet.
	maxLinkHeader = vnetSize + header.EthernetMinimumSize
)

// An endpoint is the link as the stack sees it: a device for IP packets.
// Written by hand because the stack's own for descriptors knows neither the
// filter nor the poller of Go, and brings in more than it is worth.
type endpoint struct {
	file     *os.File
	raw      syscall.RawConn
	fd       int
	mtu      uint32
	ethernet *ethernet // nil: bare IP
	filter   filter
	offload  bool // a virtio_net_hdr comes first, and checksums are left to the kernel

	// writing is held for reading by writers, and for writing while the file is closed.
	writing    sync.RWMutex
	closed     atomic.Bool
	late       sync.WaitGroup // packets that are written by themselves
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	opening    func(stack.TransportEndpointID) bool // whether a connection's handshake is not complete
	done       chan struct{}                        // closed when reading has ended
}

func newEndpoint(l *Link) (*endpoint, error) {
	raw, err := l.File.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("user-mode network: %w", err)
	}
	e := &endpoint{
		file: l.File, raw: raw, mtu: uint32(l.MTU),
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

// configure sets the options of the descriptor, and reports whether packets
// have a virtio_net_hdr: with it neither the kernel nor the stack adds up the
// bytes of packets that never leave this machine's memory.
func configure(fd int, packetSocket bool) (offload bool, err error) {
	if packetSocket {
		// What this side's kernel sends on the interface is none of ours. Since Linux 4.20.
		_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		// The queue of an interface that has just come up drops what it is given
		// until the kernel gets round to it: a first answer would be lost.
		_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		// A burst that does not fit is lost. The kernel takes as much as it allows.
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

// packetBuffer is the buffer asked for on a packet socket.
const packetBuffer = 4 << 20

// headerSize is what comes before the packet, here and in the kernel.
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

// close ends reading and writing. The file is closed with no lock held: that
// waits for the reader, who may be about to write.
func (e *endpoint) close() {
	e.writing.Lock()
	e.closed.Store(true)
	e.writing.Unlock()
	e.file.Close()
	e.late.Wait()
}

// MTU implements stack.LinkEndpoint.
func (e *endpoint) MTU() uint32 { return e.mtu }

// SetMTU implements stack.LinkEndpoint. The MTU is the interface's and stays.
func (e *endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint: headers of the link are
// written beside the packet, not into it.
func (e *endpoint) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.LinkEndpoint.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress implements stack.LinkEndpoint.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint. What comes in was in the memory
// of this machine's kernel all the time; a program that sends wrong checksums
// from a raw socket harms itself.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	c := stack.CapabilityRXChecksumOffload
	if e.offload {
		c |= stack.CapabilityTXChecksumOffload
	}
	return c
}

// Attach implements stack.LinkEndpoint.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		e.dispatcher.Store(nil)
		return
	}
	e.dispatcher.Store(&d)
}

// IsAttached implements stack.LinkEndpoint.
func (e *endpoint) IsAttached() bool { return e.dispatcher.Load() != nil }

// Wait implements stack.LinkEndpoint.
func (e *endpoint) Wait() { <-e.done }

// ARPHardwareType implements stack.LinkEndpoint.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.LinkEndpoint.
func (e *endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.LinkEndpoint.
func (e *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close implements stack.LinkEndpoint.
func (e *endpoint) Close() { e.close() }

// SetOnCloseAction implements stack.LinkEndpoint.
func (e *endpoint) SetOnCloseAction(func()) {}

// deliver hands a packet to the stack.
func (e *endpoint) deliver(view *buffer.View, proto tcpip.NetworkProtocolNumber) {
	d := e.dispatcher.Load()
	if d == nil {
		view.Release()
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(view)})
	(*d).DeliverNetworkPacket(proto, pkt)
	pkt.DecRef()
}
