package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MaxMessage is how long a message of a client may be.
const MaxMessage = 16 << 20

// A Lines transport exchanges messages as lines of JSON.
//
// The SDK's own transport ends the connection at the first line that is no
// message, and reads numbers as float64, so that a large id comes back as another.
// This one answers such a line with an error and goes on. To the SDK every request
// has a small number as its id, which Write replaces by the client's own text.
//
// A batch is read as its messages, and each is answered by itself.
type Lines struct {
	Reader io.ReadCloser
	Writer io.Writer
}

// Connect implements [mcp.Transport].
func (l *Lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{in: l.Reader, out: l.Writer, incoming: make(chan jsonrpc.Message), closed: make(chan struct{}),
		ids: map[int64]json.RawMessage{}, tokens: map[string]json.RawMessage{}}
	go c.readAll()
	return c, nil
}

type lineConn struct {
	in       io.ReadCloser
	incoming chan jsonrpc.Message // closed after the last one
	readErr  error                // why there are no more
	closing  sync.Once
	closed   chan struct{}

	writing sync.Mutex
	out     io.Writer

	mu   sync.Mutex
	last int64
	// ids has the client's ids of requests that were not answered yet, and tokens
	// its progress tokens, by what stands for them on this side.
	ids    map[int64]json.RawMessage
	tokens map[string]json.RawMessage
}

func (c *lineConn) SessionID() string { return "" }

// Close implements [mcp.Connection]. A read of standard input may go on until the
// client writes or leaves.
func (c *lineConn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.in.Close()
}

// Read implements [mcp.Connection].
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	case m, ok := <-c.incoming:
		if !ok {
			return nil, c.readErr
		}
		return m, nil
	}
}

// readAll passes on the messages of all lines.
func (c *lineConn) readAll() {
	defer close(c.incoming)
	in := bufio.NewReaderSize(c.in, 64<<10)
	for {
		line, tooLong, err := readLine(in)
		if tooLong {
			c.refuse(nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("the message is longer than %d bytes", MaxMessage))
		} else if line = bytes.TrimSpace(line); len(line) > 0 && !c.take(line) {
			return
		}
		if err != nil {
			c.readErr = err
			return
		}
	}
}

// readLine reads to the next newline. Of a line that is too long nothing is kept.
func readLine(in *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > MaxMessage; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// take passes on the messages of a line, and reports whether the connection is
// still open.
func (c *lineConn) take(line []byte) bool {
	if !json.Valid(line) {
		c.refuse(nil, jsonrpc.CodeParseError, "the line is not JSON")
		return true
	}
	messages := []json.RawMessage{line}
	if line[0] == '[' {
		// It is valid, and so is each of its elements.
		if err := json.Unmarshal(line, &messages); err != nil || len(messages) == 0 {
			c.refuse(nil, jsonrpc.CodeInvalidRequest, "the batch is empty")
			return true
		}
	}
	for _, raw := range messages {
		m := c.decode(raw)
		if m == nil {
			continue
		}
		select {
		case c.incoming <- m:
		case <-c.closed:
			return false
		}
	}
	return true
}

// decode returns a message, or nil for one that was answered here or that is about
// nothing. The names of its parts are read as they are written: encoding/json would
// take "ID" for "id" in a struct.
func (c *lineConn) decode(raw json.RawMessage) jsonrpc.Message {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		c.refuse(nil, jsonrpc.CodeInvalidRequest, "the message is no JSON object")
		return nil
	}
	id, hasID := parts["id"]
	if hasID && !isID(id) {
		c.refuse(nil, jsonrpc.CodeInvalidRequest, "the id is neither a string nor a number")
		return nil
	}
	var version, method string
	_ = json.Unmarshal(parts["jsonrpc"], &version) // no string is no version
	if version != "2.0" {
		c.refuse(id, jsonrpc.CodeInvalidRequest, `"jsonrpc" is not "2.0"`)
		return nil
	}
	name, hasMethod := parts["method"]
	switch {
	case !hasMethod:
		return response(id, parts)
	case json.Unmarshal(name, &method) != nil || string(name) == "null":
		c.refuse(id, jsonrpc.CodeInvalidRequest, "the method is no string")
		return nil
	}
	r := &jsonrpc.Request{Method: method, Params: parts["params"]}
	if !hasID {
		if method == "notifications/cancelled" {
			return c.cancel(r)
		}
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.ids[c.last] = id
	r.ID = numberID(c.last)
	c.replaceToken(r)
	return r
}

// isID reports whether a value may be an id.
func isID(raw json.RawMessage) bool {
	return raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'
}

// numberID is the SDK's form of a number.
func numberID(n int64) jsonrpc.ID {
	id, err := jsonrpc.MakeID(float64(n))
	if err != nil {
		panic(err) // a number is an id
	}
	return id
}

// response is an answer to a request of this side, or nil if it names none. What is
// wrong with an answer is not answered.
func response(id json.RawMessage, parts map[string]json.RawMessage) jsonrpc.Message {
	var value any
	if err := json.Unmarshal(id, &value); err != nil {
		return nil
	}
	own, err := jsonrpc.MakeID(value)
	if err != nil {
		return nil
	}
	r := &jsonrpc.Response{ID: own, Result: parts["result"]}
	if raw, failed := parts["error"]; failed {
		e := &jsonrpc.Error{}
		if err := json.Unmarshal(raw, e); err != nil {
			e = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the client's error cannot be read"}
		}
		r.Error = e
	}
	return r
}

// cancel names the request by its number. One that was answered needs no end.
func (c *lineConn) cancel(r *jsonrpc.Request) jsonrpc.Message {
	var params map[string]json.RawMessage
	if err := json.Unmarshal(r.Params, &params); err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, id := range c.ids {
		if bytes.Equal(id, params["requestId"]) {
			params["requestId"] = json.RawMessage(strconv.FormatInt(n, 10))
			return withParams(r, params)
		}
	}
	return nil
}

func withParams(r *jsonrpc.Request, params map[string]json.RawMessage) *jsonrpc.Request {
	if b, err := json.Marshal(params); err == nil {
		r.Params = b
	}
	return r
}

// replaceToken puts a string in place of a progress token that is a number, which
// the SDK would round. The mutex is held.
func (c *lineConn) replaceToken(r *jsonrpc.Request) {
	var params, meta map[string]json.RawMessage
	if json.Unmarshal(r.Params, &params) != nil || json.Unmarshal(params["_meta"], &meta) != nil {
		return
	}
	token := meta["progressToken"]
	if len(token) == 0 || !isID(token) || token[0] == '"' {
		return
	}
	own := tokenOf(c.last)
	c.tokens[own] = token
	meta["progressToken"] = json.RawMessage(strconv.Quote(own))
	b, err := json.Marshal(meta)
	if err != nil {
		return
	}
	params["_meta"] = b
	withParams(r, params)
}

// Write implements [mcp.Connection].
func (c *lineConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch m := m.(type) {
	case *jsonrpc.Response:
		return c.answer(c.clientID(m.ID), m)
	case *jsonrpc.Request:
		if m.Method == "notifications/progress" {
			m = c.withToken(m)
		}
		b, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			return err
		}
		return c.writeLine(b)
	}
	return fmt.Errorf("a message of type %T cannot be written", m)
}

// clientID is the client's id of a request that is answered now.
func (c *lineConn) clientID(own jsonrpc.ID) json.RawMessage {
	n, _ := own.Raw().(int64)
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.ids[n]
	delete(c.ids, n)
	delete(c.tokens, tokenOf(n))
	return id
}

// tokenOf stands for the progress token of a request.
func tokenOf(n int64) string { return fmt.Sprintf("cloche progress %d", n) }

// withToken gives a notification about progress the client's own token back.
func (c *lineConn) withToken(r *jsonrpc.Request) *jsonrpc.Request {
	var params map[string]json.RawMessage
	var own string
	if json.Unmarshal(r.Params, &params) != nil || json.Unmarshal(params["progressToken"], &own) != nil {
		return r
	}
	c.mu.Lock()
	token, ok := c.tokens[own]
	c.mu.Unlock()
	if !ok {
		return r
	}
	params["progressToken"] = token
	return withParams(&jsonrpc.Request{Method: r.Method}, params)
}

// refuse answers a line that is no message the SDK could be given. A client that
// cannot be told is gone, which the next read or write finds out.
func (c *lineConn) refuse(id json.RawMessage, code int64, text string) {
	_ = c.answer(id, &jsonrpc.Response{Error: &jsonrpc.Error{Code: code, Message: text}})
}

// answer writes a response with an id as the client wrote it; nil is null.
func (c *lineConn) answer(id json.RawMessage, r *jsonrpc.Response) error {
	if id == nil {
		id = json.RawMessage("null")
	}
	b, err := jsonrpc.EncodeMessage(&jsonrpc.Response{Result: r.Result, Error: r.Error}) // without an id
	if err != nil {
		return err
	}
	return c.writeLine(slices.Concat([]byte(`{"id":`), id, []byte(","), b[1:]))
}

func (c *lineConn) writeLine(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.out.Write(append(b, '\n'))
	return err
}
