//go:build unix

package testbus

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// An Answer is the body of an answer and its signature.
type Answer struct {
	Signature string
	Body      []byte
}

// A Service owns a name on the bus. It answers a call with the answer for its member, or else
// with its own name.
type Service struct {
	// Name is the name it owns, Unique the number of its connection.
	Name, Unique string

	answers map[string]Answer

	mu    sync.Mutex
	calls []string
	texts []string
}

// Own connects to the bus and owns a name until the test ends.
func (d *Daemon) Own(t testing.TB, name string) *Service {
	t.Helper()
	return d.OwnWith(t, name, nil)
}

// OwnWith is Own for a service with answers by member.
func (d *Daemon) OwnWith(t testing.TB, name string, answers map[string]Answer) *Service {
	t.Helper()
	conn, err := net.Dial("unix", socketOf(d.Address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	in := bufio.NewReader(conn)
	if err := authenticate(conn, in); err != nil {
		t.Fatal(err)
	}
	s := &Service{Name: name, answers: answers}
	if s.Unique, err = call(conn, in, 1, "Hello", "", nil); err != nil {
		t.Fatal(err)
	}
	var body encoder
	body.text(name)
	body.number(4) // do not queue
	if _, err := call(conn, in, 2, "RequestName", "su", body); err != nil {
		t.Fatal(err)
	}
	go s.serve(conn, in)
	return s
}

func socketOf(address string) string {
	if name, ok := strings.CutPrefix(address, "unix:abstract="); ok {
		return "@" + name
	}
	return strings.TrimPrefix(address, "unix:path=")
}

// Calls are the members that were called so far, but for those that ask about
// the connection.
func (s *Service) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Texts are the bodies of the calls, for a test that looks for words in them.
func (s *Service) Texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.texts)
}

func authenticate(conn net.Conn, in *bufio.Reader) error {
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	if _, err := fmt.Fprintf(conn, "\x00AUTH EXTERNAL %s\r\n", uid); err != nil {
		return err
	}
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "OK ") {
		return fmt.Errorf("the bus refuses: %q %v", line, err)
	}
	_, err := conn.Write([]byte("BEGIN\r\n"))
	return err
}

// call calls a method of the bus and returns the text that it answers with.
func call(conn net.Conn, in *bufio.Reader, serial uint32, member, signature string, body encoder) (string, error) {
	fields := []field{{1, "o", "/org/freedesktop/DBus"}, {3, "s", member}, {6, "s", "org.freedesktop.DBus"}, {2, "s", "org.freedesktop.DBus"}}
	if signature != "" {
		fields = append(fields, field{8, "g", signature})
	}
	if _, err := conn.Write(encode(methodCall, serial, fields, body)); err != nil {
		return "", err
	}
	for {
		m, err := read(in)
		if err != nil {
			return "", err
		}
		if m.replyTo != serial {
			continue
		}
		if m.kind != methodReturn {
			return "", fmt.Errorf("%s: the bus answers with an error", member)
		}
		return m.firstText(), nil
	}
}

// serve answers calls until the connection ends.
func (s *Service) serve(conn net.Conn, in *bufio.Reader) {
	for serial := uint32(3); ; serial++ {
		m, err := read(in)
		if err != nil {
			return
		}
		if m.kind == signal && m.sender == "org.freedesktop.DBus" {
			continue
		}
		s.mu.Lock()
		s.calls = append(s.calls, m.member)
		s.texts = append(s.texts, string(m.body))
		s.mu.Unlock()
		if m.kind != methodCall {
			continue
		}
		var body encoder
		body.text("this is " + s.Name)
		fields := []field{{5, "u", m.serial}, {6, "s", m.sender}, {8, "g", "s"}}
		if m.member == "Notify" { // which answers with the number of the notification
			body = nil
			body.number(7)
			fields[2].value = "u"
		}
		if a, ok := s.answers[m.member]; ok {
			body = a.Body
			fields[2].value = a.Signature
		}
		if _, err := conn.Write(encode(methodReturn, serial, fields, body)); err != nil {
			return
		}
	}
}
