package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testnet"
)

// muslProgram looks a name up and hears what a server at it says.
const muslProgram = `
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *a;
	int error = getaddrinfo(argv[1], argv[2], &hints, &all);
	if (error) {
		fprintf(stderr, "%s\n", gai_strerror(error));
		return 1;
	}
	for (a = all; a; a = a->ai_next) {
		char text[64];
		int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
		if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen)) {
			perror("connect");
			continue;
		}
		ssize_t n = read(fd, text, sizeof text);
		if (n > 0)
			return write(1, text, n) != n;
	}
	return 1;
}
`

// TestMusl: a static program with the resolver of musl, which asks all name servers at
// once and knows no nsswitch.conf, reaches an allowed host and no other. N3, L5.
func TestMusl(t *testing.T) {
	testenv.Need(t, "musl-gcc")
	eachBackend(t, func(t *testing.T, s *sandbox) {
		source, program := filepath.Join(s.workspace, "hear.c"), filepath.Join(s.workspace, "hear")
		if err := os.WriteFile(source, []byte(muslProgram), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("musl-gcc", "-static", "-o", program, source).CombinedOutput(); err != nil {
			t.Fatalf("musl-gcc: %v\n%s", err, out)
		}
		c := client{name: "musl", port: testnet.PortGreeter, want: "220 hello",
			command: func(host string) []string { return []string{program, host, "2525"} }}
		s = s.with("--net", "user", "--allow", "good.example:2525")
		c.reaches(t, s)
		c.isRefused(t, s)
	})
}
