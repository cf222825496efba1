package main

import (
	"net"
	"net/netip"
	"testing"
)

// What the client measures is what the server does.
func TestNetErrands(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveNet(l)
	server := netip.MustParseAddrPort(l.Addr().String())
	for _, e := range []netErrand{
		{Op: opConnect, N: 3, Server: server}, {Op: opReceive, N: 1<<20 + 1, Server: server}, {Op: opSend, N: 1<<20 + 1, Server: server},
	} {
		value, err := netClient(e.args()[1:])
		if err != nil || value <= 0 {
			t.Errorf("%c: %v, %v", e.Op, value, err)
		}
	}
	l.Close()
	if _, err := netClient(netErrand{Op: opConnect, N: 1, Server: server}.args()[1:]); err == nil {
		t.Error("there is no server, and no error")
	}
	if _, err := netClient([]string{"c", "many", "nowhere"}); err == nil {
		t.Error("arguments that mean nothing are taken")
	}
}
