package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/policy"
)

// A LinkConfig describes the interface inside.
type LinkConfig struct {
	// Name is the name of the interface.
	Name string
	// MTU is the size of its largest packet; 0 is the kernel's default.
	MTU int
	// Addresses are the addresses of the interface, with their networks. The networks get
	// no route: everything goes to a gateway.
	Addresses []netip.Prefix
	// Gateways receive all packets. There is one for each family that has an address.
	Gateways []netip.Addr
	// VNetHeader puts a struct virtio_net_hdr of ten bytes before each packet of a TUN
	// device, so that the other side can do segmentation and checksums.
	VNetHeader bool
}

// A Link is an interface of the sandbox whose packets this process reads and writes.
type Link struct {
	// File reads and writes packets, one for each call. It is a TUN device without packet
	// information, or a packet socket on the other end of a veth pair. It does not block.
	File *os.File
	// MTU is the size of the interface's largest packet.
	MTU int
	// Ethernet says that packets are frames. MAC is the interface's address in them, and
	// Gateway the one of the gateways. The kernel inside knows it and sends no ARP request.
	Ethernet     bool
	MAC, Gateway [6]byte
	// IPv6 is false if the kernel refused IPv6 addresses.
	IPv6 bool
}

// Close ends reading and writing. The interface itself ends with the namespace.
func (l *Link) Close() error { return l.File.Close() }

// Indexes of the interfaces. They are chosen in advance, so that one message can make
// the interfaces and set them up. In a new namespace only small ones are in use.
const (
	linkIndex = 1000
	peerIndex = 1001
	peerName  = "cloche-gw"
)

// Addresses of the frames on a veth pair, locally administered. The gateway's address
// is not the address of the pair's other end. That end is in the same namespace, and so
// the kernel takes no frame for the gateway as its own: only the packet socket receives
// it.
var (
	linkMAC    = [6]byte{0x02, 0x63, 0x6c, 0x6f, 0x63, 0x02}
	peerMAC    = [6]byte{0x02, 0x63, 0x6c, 0x6f, 0x63, 0x03}
	gatewayMAC = [6]byte{0x02, 0x63, 0x6c, 0x6f, 0x63, 0x01}
)

// MakeLink makes a link inside: a TUN device, which needs /dev/net/tun, or, for users
// who cannot open that, a veth pair with a packet socket on its other end.
func (n *Namespace) MakeLink(kind policy.Link, cfg LinkConfig) (*Link, error) {
	what := "veth pair"
	if kind != policy.LinkVeth {
		kind, what = policy.LinkTUN, "TUN device"
	}
	l, err := n.makeLink(kind, cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a %s in the sandbox: %w", what, err)
	}
	return l, nil
}

// linkRequests returns the descriptors that are needed to make a link: the link's own,
// and a netlink socket.
func linkRequests(kind policy.Link) []request {
	switch kind {
	case policy.LinkTUN:
		return []request{{path: tunDevice, label: "open " + tunDevice}, routeRequest()}
	case policy.LinkVeth:
		return []request{socketRequest(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0, "make a packet socket"), routeRequest()}
	default:
		return nil
	}
}

func (n *Namespace) makeLink(kind policy.Link, cfg LinkConfig) (*Link, error) {
	fds, err := n.open(linkRequests(kind)...)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fds[1])
	l := &Link{MTU: cfg.MTU}
	if kind == policy.LinkVeth {
		l.Ethernet, l.MAC, l.Gateway = true, linkMAC, gatewayMAC
	} else {
		err = attachTUN(fds[0], cfg)
	}
	if err == nil {
		err = l.configure(fds[1], cfg)
	}
	if err == nil && l.Ethernet {
		err = attachPacket(fds[0])
	}
	if err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	l.File = os.NewFile(uintptr(fds[0]), "link "+cfg.Name)
	return l, nil
}

// attachTUN makes the interface for an open TUN device.
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
	// A persistent device lives until the kernel deletes the namespace, which happens in
	// the background. Closing any other device takes about 15 ms.
	_ = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	return nil
}

// attachPacket binds a packet socket to the other end of the pair. It ignores frames
// that are sent on that end, which a command can do with SO_BINDTODEVICE. Before Linux
// 4.20 they cannot be ignored, and are checked like the others.
func attachPacket(fd int) error {
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: peerIndex}); err != nil {
		return fmt.Errorf("bind a packet socket: %w", err)
	}
	return nil
}

// configure sets the interface up, through a netlink socket of the namespace.
func (l *Link) configure(netlink int, cfg LinkConfig) error {
	b := &batch{}
	if l.Ethernet {
		b.addVeth(cfg)
		b.quietIPv6(peerIndex, peerName)
		b.up(peerIndex, peerName, cfg.MTU)
	}
	b.quietIPv6(linkIndex, cfg.Name)
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
	return nil
}

// lacksIPv6 reports whether the error means that the kernel has no IPv6, or none for
// new interfaces.
func lacksIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV)
}

// AddLocal gives the loopback interface another address, unless it has it already.
func (n *Namespace) AddLocal(a netip.Addr) error {
	err := n.sendRoutes(func(b *batch) { b.address(loopbackIndex, netip.PrefixFrom(a, a.BitLen())) })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fail("receive at the address", a, err)
	}
	return nil
}

// LoopbackUp brings the loopback interface up, with its addresses.
func (n *Namespace) LoopbackUp() error {
	return n.sendRoutes(func(b *batch) { b.up(loopbackIndex, "lo", 0) })
}

// sendRoutes sends rtnetlink requests inside.
func (n *Namespace) sendRoutes(add func(*batch)) error {
	fd, err := n.openOne(routeRequest())
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := &batch{}
	add(b)
	err, _ = b.send(fd)
	return err
}

// loopbackIndex is the number of "lo" in every namespace.
const loopbackIndex = 1

const (
	vethPeer    = 1 // VETH_INFO_PEER
	genModeNone = 1 // IN6_ADDR_GEN_MODE_NONE
	create      = unix.NLM_F_CREATE | unix.NLM_F_EXCL
)

// ifinfo is a struct ifinfomsg.
func ifinfo(index int32, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// addVeth makes the pair.
func (b *batch) addVeth(cfg LinkConfig) {
	b.message(unix.RTM_NEWLINK, create, "make the veth pair "+cfg.Name, ifinfo(linkIndex, 0, 0)...)
	b.attrText(unix.IFLA_IFNAME, cfg.Name)
	b.attr(unix.IFLA_ADDRESS, linkMAC[:])
	b.nested(unix.IFLA_LINKINFO, func() {
		b.attrText(unix.IFLA_INFO_KIND, "veth")
		b.nested(unix.IFLA_INFO_DATA, func() {
			b.nested(vethPeer, func() {
				b.bytes = append(b.bytes, ifinfo(peerIndex, 0, 0)...)
				b.attrText(unix.IFLA_IFNAME, peerName)
				b.attr(unix.IFLA_ADDRESS, peerMAC[:])
			})
		})
	})
}

// quietIPv6 prevents a link-local address on an interface. Without one, the kernel does
// not search for duplicates and routers when the interface comes up.
func (b *batch) quietIPv6(index int32, name string) {
	b.message(unix.RTM_NEWLINK, 0, "set the IPv6 address mode of "+name, ifinfo(index, 0, 0)...)
	b.ifOptional(true)
	b.nested(unix.IFLA_AF_SPEC, func() {
		b.nested(unix.AF_INET6, func() { b.attr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{genModeNone}) })
	})
}

// up brings an interface up. An mtu of 0 leaves the MTU as it is.
func (b *batch) up(index int32, name string, mtu int) {
	b.message(unix.RTM_NEWLINK, 0, "bring up "+name, ifinfo(index, unix.IFF_UP, unix.IFF_UP)...)
	if mtu > 0 {
		b.attr32(unix.IFLA_MTU, uint32(mtu))
	}
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address gives an interface an address that can be used at once, because no duplicate
// is searched for.
func (b *batch) address(index uint32, p netip.Prefix) {
	head := []byte{family(p.Addr()), byte(p.Bits()), 0, 0}
	b.message(unix.RTM_NEWADDR, create, "add the address "+p.String(), binary.NativeEndian.AppendUint32(head, index)...)
	b.ifOptional(p.Addr().Is6())
	b.attr32(unix.IFA_FLAGS, unix.IFA_F_NOPREFIXROUTE|unix.IFA_F_NODAD|unix.IFA_F_PERMANENT)
	b.attr(unix.IFA_LOCAL, p.Addr().AsSlice())
	b.attr(unix.IFA_ADDRESS, p.Addr().AsSlice())
	if p.Addr().Is6() {
		b.local(index, p.Addr())
	}
}

// local makes an interface receive packets for an IPv6 address. The kernel does the same
// later, in a work queue; until then it would drop answers to the address.
func (b *batch) local(index uint32, a netip.Addr) {
	head := routeTo(a, a.BitLen(), unix.RT_SCOPE_HOST)
	head[4], head[7] = unix.RT_TABLE_LOCAL, unix.RTN_LOCAL
	b.message(unix.RTM_NEWROUTE, create, "receive at the address "+a.String(), head...)
	b.ifOptional(true)
	b.attr(unix.RTA_DST, a.AsSlice())
	b.attr32(unix.RTA_OIF, index)
}

// routes adds two routes: packets to the gateway go to the interface, and all others to
// the gateway.
func (b *batch) routes(index uint32, gateway netip.Addr) {
	b.message(unix.RTM_NEWROUTE, create, "add the route to "+gateway.String(), routeTo(gateway, gateway.BitLen(), unix.RT_SCOPE_LINK)...)
	b.ifOptional(gateway.Is6())
	b.attr(unix.RTA_DST, gateway.AsSlice())
	b.attr32(unix.RTA_OIF, index)
	b.message(unix.RTM_NEWROUTE, create, "add the default route by "+gateway.String(), routeTo(gateway, 0, unix.RT_SCOPE_UNIVERSE)...)
	b.ifOptional(gateway.Is6())
	b.attr(unix.RTA_GATEWAY, gateway.AsSlice())
	b.attr32(unix.RTA_OIF, index)
}

// routeTo returns a struct rtmsg.
func routeTo(gateway netip.Addr, bits int, scope byte) []byte {
	b := make([]byte, unix.SizeofRtMsg)
	b[0], b[1], b[4] = family(gateway), byte(bits), unix.RT_TABLE_MAIN
	b[5], b[6], b[7] = unix.RTPROT_STATIC, scope, unix.RTN_UNICAST
	return b
}

// neighbour sets the link address of a gateway permanently.
func (b *batch) neighbour(index uint32, gateway netip.Addr, mac [6]byte) {
	head := []byte{family(gateway), 0, 0, 0}
	head = binary.NativeEndian.AppendUint32(head, index)
	head = binary.NativeEndian.AppendUint16(head, unix.NUD_PERMANENT)
	b.message(unix.RTM_NEWNEIGH, create, "add the neighbour "+gateway.String(), append(head, 0, 0)...)
	b.ifOptional(gateway.Is6())
	b.attr(unix.NDA_DST, gateway.AsSlice())
	b.attr(unix.NDA_LLADDR, mac[:])
}
