package testnet

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The ports of the servers, at every address of the internet.
const (
	PortEcho    = 7     // TCP and UDP: sends back what it gets
	PortGreeter = 2525  // TCP: the server speaks first
	PortSSH     = 2222  // sshd, for the user that the tests run as: see [SSHKey]
	PortGRPC    = 50051 // gRPC without TLS: method /echo.Echo/Say
	PortQUIC    = 4433  // UDP: sends back each stream
)

// Greeting is what the greeter says.
const Greeting = "220 hello\r\n"

// AuthorityFile is the certificate that signed those of the servers.
func AuthorityFile() string { return filepath.Join(Dir(), "ca.pem") }

// A Log is what the servers saw.
type Log struct {
	// Questions are the names that were asked for, in order.
	Questions []string
	// Requests are those of the web servers: "METHOD host/path".
	Requests []string
	// Authorized are the fields Authorization of requests for /token.
	Authorized []string
	// Accepted are the connections to echo and greeter, and the datagrams: the
	// address that was called.
	Accepted []string
}

// Seen returns what the servers saw until now.
func Seen() (*Log, error) {
	resp, err := http.Get("http://" + NameServer + "/control/log")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	l := &Log{}
	return l, json.NewDecoder(resp.Body).Decode(l)
}

// servers are what runs at the other end of the cable.
type servers struct {
	dir   string
	names *nameServer
	tls   *tls.Config
	mu    sync.Mutex
	log   Log
	stops []func()
}

func startServers(dir string) (stop func(), err error) {
	s := &servers{dir: dir, names: &nameServer{turn: map[string]int{}}}
	stop = func() {
		for _, f := range s.stops {
			f()
		}
	}
	steps := []func() error{s.startNames, s.startWeb, s.startEcho, s.startGreeter, s.startQUIC, s.startRepository, s.startSSH, s.startGRPC}
	for _, step := range steps {
		if err := step(); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

func (s *servers) startNames() error {
	stop, err := s.names.start()
	if err == nil {
		s.stops = append(s.stops, stop)
	}
	return err
}

func (s *servers) startWeb() error {
	var err error
	if s.tls, err = makeAuthority(s.dir); err != nil {
		return err
	}
	web := &http.Server{Handler: s.handler(), ErrorLog: log.New(io.Discard, "", 0)}
	plain, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	alternative, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	secure, err := tls.Listen("tcp", ":443", s.tls)
	if err != nil {
		return err
	}
	for _, l := range []net.Listener{plain, alternative, secure} {
		go web.Serve(l)
	}
	s.stops = append(s.stops, func() { web.Close() })
	return nil
}

// handler is the web site: what was asked for, the log, and git.
func (s *servers) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/control/log", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log.Questions = s.names.questions()
		json.NewEncoder(w).Encode(&s.log)
	})
	mux.Handle("/git/", &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Root: "/git", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(s.dir, "git"), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		s.note(&s.log.Authorized, r.Header.Get("Authorization"))
		fmt.Fprintf(w, "you sent %s\n", r.Header.Get("Authorization"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		fmt.Fprintf(w, "%s %s%s %d bytes\n", r.Method, r.Host, r.URL.Path, len(body))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/control/") {
			s.note(&s.log.Requests, r.Method+" "+r.Host+r.URL.Path)
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *servers) note(list *[]string, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, what)
}

// startEcho listens at each address on its own for datagrams, so that answers
// come from where the question went.
func (s *servers) startEcho() error {
	if err := s.stream(PortEcho, func(c net.Conn) { io.Copy(c, c) }); err != nil {
		return err
	}
	for _, text := range addresses() {
		addr := netip.MustParsePrefix(text).Addr()
		c, err := net.ListenPacket("udp", netip.AddrPortFrom(addr, PortEcho).String())
		if err != nil {
			return err
		}
		s.stops = append(s.stops, func() { c.Close() })
		go func() {
			buf := make([]byte, 65536)
			for {
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				s.note(&s.log.Accepted, "udp "+c.LocalAddr().String())
				c.WriteTo(buf[:n], from)
			}
		}()
	}
	return nil
}

func (s *servers) startGreeter() error {
	return s.stream(PortGreeter, func(c net.Conn) {
		io.WriteString(c, Greeting)
		io.Copy(c, c)
	})
}

// stream serves a port at every address.
func (s *servers) stream(port int, serve func(net.Conn)) error {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			s.note(&s.log.Accepted, "tcp "+c.LocalAddr().String())
			go func() { defer c.Close(); serve(c) }()
		}
	}()
	return nil
}

func writeFile(dir, name, text string, mode os.FileMode) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), mode)
}
