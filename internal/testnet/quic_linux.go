package testnet

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/netip"

	"golang.org/x/net/quic"
)

// startQUIC sends back what comes on each stream.
func (s *servers) startQUIC() error {
	config := s.tls.Clone()
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = []string{"echo"}
	ctx, cancel := context.WithCancel(context.Background())
	s.stops = append(s.stops, cancel)
	for _, text := range addresses() {
		// Each on its own: answers have to come from where the question went.
		addr := netip.AddrPortFrom(netip.MustParsePrefix(text).Addr(), PortQUIC)
		e, err := quic.Listen("udp", addr.String(), &quic.Config{TLSConfig: config})
		if err != nil {
			return err
		}
		go acceptQUIC(ctx, e)
	}
	return nil
}

func acceptQUIC(ctx context.Context, e *quic.Endpoint) {
	for {
		conn, err := e.Accept(ctx)
		if err != nil {
			return
		}
		go echoStreams(ctx, conn)
	}
}

func echoStreams(ctx context.Context, conn *quic.Conn) {
	for {
		stream, err := conn.AcceptStream(ctx)
		if err != nil {
			return
		}
		io.Copy(stream, stream)
		stream.Close()
	}
}

// SayQUIC sends a text on a stream of its own and returns what comes back.
func SayQUIC(ctx context.Context, address, name, text string, config *tls.Config) (string, error) {
	e, err := quic.Listen("udp", ":0", nil)
	if err != nil {
		return "", err
	}
	// Both sides would wait ten seconds for each other to end the connection.
	atOnce, cancel := context.WithCancel(ctx)
	cancel()
	defer e.Close(atOnce)
	config.ServerName, config.NextProtos, config.MinVersion = name, []string{"echo"}, tls.VersionTLS13
	conn, err := e.Dial(ctx, "udp", address, &quic.Config{TLSConfig: config})
	if err != nil {
		return "", err
	}
	defer conn.Abort(nil)
	stream, err := conn.NewStream(ctx)
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(stream, text); err != nil {
		return "", err
	}
	if err := errors.Join(stream.Flush(), stream.CloseWrite()); err != nil {
		return "", err
	}
	out, err := io.ReadAll(stream)
	return string(out), err
}
