package apitest

import (
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// refusedThenBound connects from a port to where nobody listens, closes the socket, and uses the port again.
const refusedThenBound = `
import socket
def unused(s):
    s.bind(("127.0.0.1", 0))
    return s.getsockname()[1]
busy = 0
for _ in range(300):
    with socket.socket() as server, socket.socket() as probe:
        server_port = unused(server)
        server.listen()
        port = unused(probe)
        probe.close()
        with socket.socket(socket.AF_INET6) as first:
            first.settimeout(60)
            first.bind(("", port))
            try: first.connect(("::1", server_port))
            except ConnectionRefusedError: pass
        with socket.socket() as second:
            try: second.bind(("", port))
            except OSError: busy += 1; continue
            second.connect(("127.0.0.1", server_port))
            server.accept()[0].close()
print(busy)
`

// C3: once a command has closed a socket, its port is free: cloche, which made the connection, holds it no longer.
func TestPortIsFreeAfterRefusal(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "/usr/bin/python3")
	testenv.AlsoAsUser(t)
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("native")), dir)
	r, err := s.Command(t.Context(), "/usr/bin/python3", "-c", refusedThenBound).Capture()
	if err != nil || string(r.Stdout) != "0\n" {
		t.Errorf("%v: %s %s", err, r.Stdout, r.Stderr)
	}
}
