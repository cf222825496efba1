package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// A LinkConfig is how the interface inside is set up.
type LinkConfig struct {
	// Name is the interface's.
	Name string
	// MTU is its largest packet; 0 is the kernel's default.
	MTU int
	// Addresses are those of the interface, with their networks. No route is made
	// for a network: everything goes to a gateway.
	Addresses []netip.Prefix
	// Gateways are where packets for everywhere are sent: one for each family that
	// has an address.
	Gateways []netip.Addr
	// VNetHeader puts a struct virtio_net_hdr of ten bytes before each packet of a
	// TUN, for segmentation and checksums that are left to the other side.
	VNetHeader bool
}

// The kinds of link.
const (
	KindTUN  = "tun"
	KindVeth = "veth"
)

// A Link is an interface of the sandbox whose packets come out here.
type Link struct {
	// File is where packets are read and written, one for each call: a TUN device
	// without packet information, or a packet socket on the other end of a veth
	// pair. It does not block.
	File *os.File
	Kind string
	// Name and MTU are the interface's.
	Name string
	MTU  int
	// VNetHeader is as in the LinkConfig, for a TUN.
	VNetHeader bool
	// Ethernet: packets are frames. MAC is the interface's address in them, Gateway
	// that of the gateways; the kernel inside knows it and asks for it by no ARP.
	Ethernet     bool
	MAC, Gateway [6]byte
	// IPv6 is false where the kernel refused the addresses of that family.
	IPv6 bool
}

// Close takes the interface's way out away. It is gone with the namespace.
func (l *Link) Close() error { return l.File.Close() }

// Numbers of the interfaces. They are chosen and not asked for, so that making
// and setting up is one message; a new namespace has small ones.
const (
	linkIndex = 1000
	peerIndex = 1001
	peerName  = "cloche-gw"
)

// Addresses of the frames on a veth pair, locally administered. The gateway's is
// not that of the pair's other end: the kernel of the sandbox, which has that end
// too, then takes no frame for its own, and only the packet socket gets them.
var (
	linkMAC    = [6]byte{0x02, 0x63, 0x6c, 0x6f, 0x63, 0x02}
	peerMAC    = [6]byte{0x02, 0x63, 0x6c, 0x6f, 0x63, 0x03}
	gatewayMAC = [6]byte{0x02, 0x63, 0x6c, 0x6f, 0x63, 0x01}
)

// TUN makes a TUN device inside. It needs /dev/net/tun.
func (n *Namespace) TUN(cfg LinkConfig) (*Link, error) {
	fds, err := n.open(tunRequest(), routeRequest())
	if err != nil {
		return nil, fmt.Errorf("cannot make a TUN device in the sandbox: %w", err)
	}
	defer unix.Close(fds[1])
	l := &Link{Kind: KindTUN, Name: cfg.Name, VNetHeader: cfg.VNetHeader}
	if err = attachTUN(fds[0], cfg); err == nil {
		err = l.configure(fds[1], cfg)
	}
	if err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("cannot make a TUN device in the sandbox: %w", err)
	}
	l.File = os.NewFile(uintptr(fds[0]), "tun "+cfg.Name)
	return l, nil
}

// attachTUN makes the interface behind an opened device.
func attachTUN(fd int, cfg LinkConfig) error {
	request, err := unix.NewIfreq(cfg.Name)
	if err != nil {
		return fmt.Errorf("the interface name %q: %w", cfg.Name, err)
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if cfg.VNetHeader {
		flags |= unix.IFF_VNET_HDR
	}
	request.SetUint16(flags)
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, linkIndex); err != nil {
		return fmt.Errorf("ioctl TUNSETIFINDEX: %w", err)
	}
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("ioctl TUNSETIFF: %w", err)
	}
	// The device lives as long as the namespace, which the kernel takes apart when
	// nobody waits. To close one that does not persist takes some 15 ms: without this
	// it would only end later.
	_ = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	return nil
}

// Veth makes a veth pair inside, with a packet socket on its other end, for users
// who cannot open /dev/net/tun.
func (n *Namespace) Veth(cfg LinkConfig) (*Link, error) {
	fds, err := n.open(packetRequest(), routeRequest())
	if err != nil {
		return nil, fmt.Errorf("cannot make a veth pair in the sandbox: %w", err)
	}
	defer unix.Close(fds[1])
	l := &Link{Kind: KindVeth, Name: cfg.Name, Ethernet: true, MAC: linkMAC, Gateway: gatewayMAC}
	if err = l.configure(fds[1], cfg); err == nil {
		err = attachPacket(fds[0])
	}
	if err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("cannot make a veth pair in the sandbox: %w", err)
	}
	l.File = os.NewFile(uintptr(fds[0]), "veth "+cfg.Name)
	return l, nil
}

// attachPacket binds a packet socket to the other end of the pair. Frames that
// leave by that end, which a command can send by SO_BINDTODEVICE, are not for us;
// before Linux 4.20 they cannot be left out, and are judged like the others.
func attachPacket(fd int) error {
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: peerIndex}); err != nil {
		return fmt.Errorf("bind a packet socket: %w", err)
	}
	return nil
}

// configure sets the interface up over a netlink socket of the namespace.
func (l *Link) configure(netlink int, cfg LinkConfig) error {
	b := &batch{}
	if l.Kind == KindVeth {
		b.addVeth(cfg)
	}
	b.quietIPv6(linkIndex, cfg.Name)
	if l.Kind == KindVeth {
		b.quietIPv6(peerIndex, peerName)
		b.up(peerIndex, peerName, cfg.MTU)
	}
	b.up(linkIndex, cfg.Name, cfg.MTU)
	b.up(loopbackIndex, "lo", 0)
	for _, a := range cfg.Addresses {
		b.address(linkIndex, a)
	}
	for _, g := range cfg.Gateways {
		if l.Ethernet {
			b.neighbour(linkIndex, g, l.Gateway)
		}
		b.routes(linkIndex, g)
	}
	err, optional := b.send(netlink)
	if err != nil {
		return err
	}
	if optional != nil && !lacksIPv6(optional) {
		return optional
	}
	l.IPv6 = optional == nil
	l.MTU = cfg.MTU
	return nil
}

// lacksIPv6: the kernel has no IPv6, or it is switched off for new interfaces.
func lacksIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV)
}

// AddLocal gives the loopback interface another address, unless it has it.
func (n *Namespace) AddLocal(a netip.Addr) error {
	fd, err := n.make(routeRequest())
	if err == nil {
		defer unix.Close(fd)
		var b batch
		b.address(loopbackIndex, netip.PrefixFrom(a, a.BitLen()))
		err, _ = b.send(fd)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fail("receive at the address", a, err)
	}
	return nil
}

// LoopbackUp brings the loopback interface up, with its addresses.
func (n *Namespace) LoopbackUp() error {
	fds, err := n.open(routeRequest())
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	b := &batch{}
	b.up(loopbackIndex, "lo", 0)
	err, _ = b.send(fds[0])
	return err
}
