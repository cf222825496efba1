package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"
)

// serve runs a TCP server at an address of the world.
func (w *world) serve(address string, handle func(net.Conn)) {
	w.t.Helper()
	l := listen(w.t)
	w.mu.Lock()
	w.servers["tcp "+address] = l.Addr().String()
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
}

// listen makes a listener that is closed with the test.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serveHTTP runs a web server.
func (w *world) serveHTTP(address string, handler http.HandlerFunc) {
	w.t.Helper()
	l := listen(w.t)
	w.mu.Lock()
	w.servers["tcp "+address] = l.Addr().String()
	w.mu.Unlock()
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go s.Serve(l)
	w.t.Cleanup(func() { s.Close() })
}

// serveTLS runs a web server whose certificate is for the names.
func (w *world) serveTLS(address string, handler http.HandlerFunc, names ...string) *x509.CertPool {
	w.t.Helper()
	cert, pool := certificate(w.t, names...)
	l := listen(w.t)
	w.mu.Lock()
	w.servers["tcp "+address] = l.Addr().String()
	w.mu.Unlock()
	s := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ReadHeaderTimeout: time.Minute}
	s.ErrorLog = log.New(io.Discard, "", 0)
	go s.ServeTLS(l, "", "")
	w.t.Cleanup(func() { s.Close() })
	return pool
}

func certificate(t testing.TB, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
