package apitest

import (
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// flipper opens, renames and makes names that another thread changes thousands of
// times while the calls wait for their answer. It prints what it could read.
const flipper = `
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
good, bad = [s.encode() for s in sys.argv[1:3]]
size = max(len(good), len(bad)) + 1
name = ctypes.create_string_buffer(good, size)
running, flips = True, 0
def flip():
    global flips
    g, b = good + b"\0" * (size - len(good)), bad + b"\0" * (size - len(bad))
    while running:
        ctypes.memmove(name, b, size); ctypes.memmove(name, g, size); flips += 1
thread = threading.Thread(target=flip); thread.start()
for i in range(300):
    fd = libc.open(name, os.O_RDONLY)
    if fd >= 0:
        sys.stdout.write(os.read(fd, 100).decode()); os.close(fd)
    fd = libc.open(name, os.O_WRONLY | os.O_APPEND)
    if fd >= 0:
        os.write(fd, b"w"); os.close(fd)
running = False; thread.join()
sys.stdout.write("flips %d\n" % flips)
`

// N2: a name that changes in the memory of the process while the person decides
// gains nothing: what was read when the call was made is what is opened.
func TestAskRace(t *testing.T) {
	eachAsking(t, func(t *testing.T, p askPlace) {
		testenv.Need(t, "python3")
		good, bad := p.home+"/.cache/x/good", p.secret+"/key"
		writeFile(t, good, "good\n")
		c := &clerk{decide: func(r grant.Request) *grant.Decision {
			time.Sleep(20 * time.Millisecond) // the name changes meanwhile
			return &grant.Decision{Allow: strings.HasPrefix(r.Path, p.home+"/.cache/x")}
		}}
		s := p.open(t, c)
		r, err := s.Command(t.Context(), "python3", "-c", flipper, good, bad).Capture()
		if err != nil {
			t.Fatal(err)
		}
		out := string(r.Stdout)
		if strings.Contains(out, "hush") || read(t, bad) != "hush\n" {
			t.Errorf("the secret was read or written: %q, %q", out, read(t, bad))
		}
		if !strings.Contains(out, "flips ") || !strings.Contains(read(t, good), "w") || len(c.requests()) < 2 {
			t.Errorf("it did not race: %q, %s, asked %q", out, r.Stderr, c.requests())
		}
		t.Log(out[max(0, len(out)-40):])
	})
}
