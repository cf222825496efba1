package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

const (
	resolvConf = "/etc/resolv.conf"
	// maxServers is how many name servers are asked in turn.
	maxServers = 3
	// serverWait is how long one of them has.
	serverWait = 3 * time.Second
)

const errNoServer = failure("the host's " + resolvConf + " names no name server")

// hostExchange sends a query to the host's name servers in turn, by UDP, and by TCP if the
// answer does not fit. The port is a new one each time and chosen by the
// kernel, so that an answer from elsewhere has to guess it and the identifier.
func hostExchange(ctx context.Context, query []byte) ([]byte, error) {
	text, err := os.ReadFile(resolvConf)
	if err != nil {
		return nil, err
	}
	err = errNoServer
	for _, server := range nameServers(string(text)) {
		var answer []byte
		if answer, err = askServer(ctx, server, query); err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// nameServers reads the name servers of a resolv.conf.
func nameServers(text string) []string {
	var servers []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" || len(servers) == maxServers {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr, 53).String())
		}
	}
	return servers
}

func askServer(ctx context.Context, server string, query []byte) ([]byte, error) {
	answer, err := askOver(ctx, "udp", server, query)
	if err == nil && answer[2]&2 != 0 { // it was cut
		return askOver(ctx, "tcp", server, query)
	}
	return answer, err
}

// askOver returns the first message that may be an answer to the query: whether it
// is about the same question is for the caller to see.
func askOver(ctx context.Context, network, server string, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer shut(conn)
	stop := context.AfterFunc(ctx, func() { shut(conn) })
	defer stop()
	if network == "tcp" {
		return askStream(conn, query)
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		if isReply(buffer[:n], query) {
			return buffer[:n], nil
		}
	}
}

func askStream(conn net.Conn, query []byte) ([]byte, error) {
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(query)))
	if _, err := conn.Write(append(framed, query...)); err != nil {
		return nil, err
	}
	answer, err := readMessage(conn)
	if err == nil && !isReply(answer, query) {
		err = errors.New("the name server answers another question")
	}
	return answer, err
}

// isReply reports whether a message has the identifier of the query and is an answer.
func isReply(b, query []byte) bool {
	return len(b) >= 12 && b[0] == query[0] && b[1] == query[1] && b[2]&0x80 != 0
}

// readMessage reads one DNS message of a stream.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}
