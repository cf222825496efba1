package network

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/wellknown"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// L5: the machine's own network is never set up as a sandbox's, and what was taken
// for it is given back.
func TestOwnNamespaceIsRefused(t *testing.T) {
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := &plan.Network{Mode: policy.NetworkUser, Link: policy.LinkVeth,
		Publish: []plan.Port{{Address: "127.0.0.1", Inside: 80, Protocol: "tcp"}}}
	ports, err := Bind(n)
	if err != nil {
		t.Fatal(err)
	}
	taken := ports.Published()[0].Host
	if _, err := Start(file, Config{Network: n, Ports: ports}); !errors.Is(err, errOwn) {
		t.Errorf("the error is %v", err)
	}
	if _, err := net.InterfaceByName(wellknown.Interface); err == nil {
		t.Errorf("the machine has the interface %s", wellknown.Interface)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: taken})
	if err != nil {
		t.Errorf("the published port is not given back: %v", err)
	} else {
		l.Close()
	}
}

// A file that is no namespace is an error that says so.
func TestNoNamespace(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = Start(file, Config{Network: &plan.Network{Mode: policy.NetworkNone}})
	if err == nil || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("the error is %v", err)
	}
}
