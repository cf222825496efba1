package testnet

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers queries for Names and remembers every question.
type nameServer struct {
	mu    sync.Mutex
	asked []string
	turn  map[string]int
}

func (s *nameServer) start() (stop func(), err error) {
	udp, err := net.ListenPacket("udp", NameServer+":53")
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp", NameServer+":53")
	if err != nil {
		udp.Close()
		return nil, err
	}
	go s.serveUDP(udp)
	go s.serveTCP(tcp)
	return func() { udp.Close(); tcp.Close() }, nil
}

func (s *nameServer) serveUDP(c net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if out := s.answer(buf[:n]); out != nil {
			c.WriteTo(out, from)
		}
	}
}

func (s *nameServer) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(c, size[:]); err != nil {
					return
				}
				msg := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, msg); err != nil {
					return
				}
				out := s.answer(msg)
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
			}
		}()
	}
}

func (s *nameServer) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	addrs, known := s.look(name, q.Type)
	header := dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	if !known {
		header.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, header)
	b.EnableCompression()
	b.StartQuestions()
	b.Question(q)
	b.StartAnswers()
	for _, a := range addrs {
		rh := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 30}
		if a.Is4() {
			b.AResource(rh, dnsmessage.AResource{A: a.As4()})
		} else {
			b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	if known && q.Type == dnsmessage.TypeTXT {
		b.TXTResource(dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 30}, dnsmessage.TXTResource{TXT: []string{"text of " + name}})
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

// look notes the question and returns the addresses of the asked type.
func (s *nameServer) look(name string, kind dnsmessage.Type) (addrs []netip.Addr, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	lists, known := Names[name]
	if !known {
		return nil, false
	}
	list := lists[min(s.turn[name], len(lists)-1)]
	if kind == dnsmessage.TypeA {
		s.turn[name]++
	}
	for _, text := range list {
		a := netip.MustParseAddr(text)
		if a.Is4() && kind == dnsmessage.TypeA || a.Is6() && kind == dnsmessage.TypeAAAA {
			addrs = append(addrs, a)
		}
	}
	return addrs, true
}

func (s *nameServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}
