package supervise

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"testing"
)

// startRelay runs a relay over what is written to its pipe, and returns the command's
// end, the caller's ends, and the relay.
func startRelay(t *testing.T, copies bool) (theirs, in, out *os.File, r *relay) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close() })
	r, theirs, err = newRelay(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	r.copies = copies
	go r.run()
	return theirs, in, out, r
}

// Of the caller's pipe as much is taken as the command has read, not a byte more
// or less, also of so much that the room grows. F12
func TestRelayTakesWhatIsRead(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 65536, 65537, 300001} {
		theirs, in, out, r := startRelay(t, false)
		data := make([]byte, 500_000)
		_, _ = rand.Read(data)
		go func() { _, _ = out.Write(data); out.Close() }()
		got := make([]byte, size)
		if _, err := io.ReadFull(theirs, got); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		r.end()
		rest, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(append(got, rest...), data) {
			t.Errorf("read %d: %d are left of %d, %v", size, len(rest), len(data), err)
		}
	}
}

// A command that reads to the end gets all of it, and the end, also where bytes cannot
// be shown before they are taken.
func TestRelayToTheEnd(t *testing.T) {
	for _, copies := range []bool{false, true} {
		theirs, in, out, r := startRelay(t, copies)
		data := bytes.Repeat([]byte("all of it "), 100_000)
		go func() { _, _ = out.Write(data); out.Close() }()
		got, err := io.ReadAll(theirs)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("copies %v: read %d of %d, %v", copies, len(got), len(data), err)
		}
		r.end()
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("copies %v: left for others: %d, %v", copies, len(rest), err)
		}
	}
}

// A relay ends while nothing comes, while the command does not read, and where
// somebody else keeps the command's end.
func TestRelayEnds(t *testing.T) {
	for _, text := range []string{"", "something"} {
		_, in, out, r := startRelay(t, false)
		_, _ = out.WriteString(text)
		r.end()
		out.Close()
		if rest, err := io.ReadAll(in); err != nil || string(rest) != text {
			t.Errorf("left %q of %q, %v", rest, text, err)
		}
	}
}
