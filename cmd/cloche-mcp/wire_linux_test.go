package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/mcpserver"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A wire is a client that writes its lines itself.
type wire struct {
	t   *testing.T
	ws  string
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Reader
}

// A reply is a line of the server.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Token json.RawMessage `json:"progressToken"`
	} `json:"params"`
	Result map[string]any `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func newWire(t *testing.T) *wire {
	t.Helper()
	testenv.Need(t, "userns")
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	w := &wire{t: t, ws: base + "/ws"}
	for _, d := range []string{w.ws, base + "/home", base + "/tmp"} {
		must(t, os.Mkdir(d, 0o755))
	}
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "--workspace", w.ws)
	cmd.Env = []string{asServer + "=1", "HOME=" + base + "/home", "TMPDIR=" + base + "/tmp", "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
	cmd.Dir = w.ws
	stderr := &syncBuffer{}
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // the server may be gone
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v: %s", err, stderr)
		}
	})
	w.in, w.out = in, bufio.NewReaderSize(out, 1<<20)
	w.send(`{"jsonrpc":"2.0","id":"start","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"wire","version":"1"}}}`)
	if r := w.reply(); r.Error != nil {
		t.Fatalf("initialize: %+v", r.Error)
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return w
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := w.in.Write([]byte(line + "\n")); err != nil {
		w.t.Fatalf("%.200s: %v", line, err)
	}
}

func (w *wire) reply() reply {
	w.t.Helper()
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		w.t.Fatalf("the server says no more: %v", err)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
	return r
}

// N11: a line that is no message is answered, and the server goes on.
func TestBadLines(t *testing.T) {
	testenv.AlsoAsUser(t)
	w := newWire(t)
	const parse, invalid = -32700, -32600
	for _, c := range []struct {
		line string
		code int
		id   string
	}{
		{`{`, parse, "null"},
		{`hello`, parse, "null"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} x`, parse, "null"},
		{"\x00\xff\xfe", parse, "null"},
		{strings.Repeat("[", 20000), parse, "null"},
		{`"ping"`, invalid, "null"},
		{`null`, invalid, "null"},
		{`[]`, invalid, "null"},
		{`[7]`, invalid, "null"},
		{`{"jsonrpc":"1.0","id":9007199254740993,"method":"ping"}`, invalid, "9007199254740993"},
		{`{"jsonrpc":"2.0","id":"a","method":7}`, invalid, `"a"`},
		{`{"jsonrpc":"2.0","id":"a","method":null}`, invalid, `"a"`},
		{`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, invalid, "null"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, invalid, "null"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", mcpserver.MaxMessage) + `"}}`, invalid, "null"},
	} {
		w.send(c.line)
		r := w.reply()
		if r.Error == nil || r.Error.Code != c.code || string(r.ID) != c.id {
			t.Errorf("%.80s: id %s, %+v; want id %s and code %d", c.line, r.ID, r.Error, c.id, c.code)
		}
	}
	// An answer to nothing is no request: it is left alone.
	w.send(`{"jsonrpc":"2.0","id":4711,"result":{}}`)
	w.send(`{"jsonrpc":"2.0","result":{}}`)
	w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nothing"}}`)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if r := w.reply(); r.Error != nil || string(r.ID) != "1" {
		t.Errorf("after them: %s %+v", r.ID, r.Error)
	}
}

// N11: ids and progress tokens come back as they were written, and a call is canceled by
// its id.
func TestIDs(t *testing.T) {
	testenv.AlsoAsUser(t)
	w := newWire(t)
	ids := []string{`0`, `-1`, `7`, `9007199254740993`, `18446744073709551615`, `123456789012345678901234567890`, `1.5`, `1e3`, `1E400`,
		`""`, `"7"`, `"9007199254740993"`, `"<&>"`, `"\u00e4\n"`, `"` + strings.Repeat("x", 1000) + `"`}
	for _, id := range ids {
		w.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		if r := w.reply(); string(r.ID) != id || r.Error != nil {
			t.Errorf("%s came back as %s, %+v", id, r.ID, r.Error)
		}
	}
	w.send(`[{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]`)
	batch := map[string]bool{string(w.reply().ID): true, string(w.reply().ID): true}
	if !batch["9007199254740993"] || !batch[`"b"`] {
		t.Errorf("of a batch: %v", batch)
	}

	const id, token = "9007199254740993", "9007199254740995"
	w.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"run_command","_meta":{"progressToken":` + token +
		`},"arguments":{"shell":"echo started; sleep 1000"}}}`)
	if r := w.reply(); r.Method != "notifications/progress" || string(r.Params.Token) != token {
		t.Fatalf("%+v, want progress of %s", r, token)
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	for {
		if r := w.reply(); r.Method == "" {
			if string(r.ID) != id {
				t.Errorf("%s came back as %s", id, r.ID)
			}
			break
		}
	}
}

// N11: a FIFO is not written, and holds nothing up.
func TestWriteToFIFO(t *testing.T) {
	testenv.AlsoAsUser(t)
	w := newWire(t)
	must(t, syscall.Mkfifo(w.ws+"/fifo", 0o666))
	write := func(id int, path string) {
		w.send(`{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"` + path + `","content":"new\n"}}}`)
	}
	for id := range 3 {
		write(id, "fifo")
	}
	write(3, "file")
	for range 4 {
		r := w.reply()
		text, err := json.Marshal(r.Result)
		must(t, err)
		failed := r.Result["isError"] == true
		if isFile := string(r.ID) == "3"; isFile == failed || failed && !strings.Contains(string(text), "no regular file") {
			t.Errorf("%s: %s", r.ID, text)
		}
	}
	if got, err := os.ReadFile(w.ws + "/file"); err != nil || string(got) != "new\n" {
		t.Errorf("%q, %v", got, err)
	}
}
