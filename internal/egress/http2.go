package egress

import (
	"encoding/binary"
	"io"
	"strings"

	"github.com/cloche-dev/cloche/plan"
)

// The parts of HTTP/2 that matter here (RFC 9113, 4.1 and 6).
const (
	preface2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameHeaders      = 1
	framePush         = 5
	frameContinuation = 9

	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20

	// maxBlock bounds the header of a request, maxContinued its frames.
	maxBlock     = 64 << 10
	maxContinued = 32
)

// sendHTTP2 carries the client's side of plain HTTP/2, as gRPC without TLS is:
// each request is judged by the host that it names before its header is
// sent on. All else passes as it is.
func (f *Flow) sendHTTP2(in *stream) error {
	start := make([]byte, len(preface2))
	if _, err := io.ReadFull(in.buf, start); err != nil {
		return endOf(err)
	}
	if string(start) != preface2 {
		return malformed("the preface of HTTP/2 is not complete")
	}
	n, err := f.upstream.Write(start)
	f.sent.Add(int64(n))
	for decoder := newHPACK(); err == nil; {
		err = f.sendFrame(in, decoder)
	}
	return endOf(err)
}

// sendFrame judges and carries one frame, or the several that a header may take.
func (f *Flow) sendFrame(in *stream, decoder *hpack) error {
	head, err := in.buf.Peek(9)
	if err != nil {
		return err
	}
	switch head[3] {
	case framePush, frameContinuation:
		return malformed("a frame of HTTP/2 is out of place")
	case frameHeaders:
		raw, block, err := readBlock(in)
		if err != nil {
			return err
		}
		if err := f.judgeBlock(decoder, block); err != nil {
			return err
		}
		n, err := f.upstream.Write(raw)
		f.sent.Add(int64(n))
		return err
	}
	n, err := in.copyLength(f.upstream, 9+frameLength(head))
	f.sent.Add(n)
	return err
}

func frameLength(head []byte) int64 {
	return int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
}

// readBlock reads the frames of one header, and returns them as they are, and
// what they hold.
func readBlock(in *stream) (raw, block []byte, err error) {
	var id uint32
	for range maxContinued {
		frame, err := readFrame(in.buf)
		if err != nil {
			return nil, nil, noEOF(err)
		}
		raw = append(raw, frame...)
		stream := binary.BigEndian.Uint32(frame[5:]) & (1<<31 - 1)
		part, ok := frame[9:], frame[3] == frameContinuation && stream == id
		if len(raw) == len(frame) { // the first
			id = stream
			part, ok = headersPart(frame[4], part)
		}
		if block = append(block, part...); !ok || len(block) > maxBlock {
			break
		}
		if frame[4]&flagEndHeaders != 0 {
			return raw, block, nil
		}
	}
	return nil, nil, malformed("its header is too large, or its frames are out of place")
}

func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 9)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	size := frameLength(frame)
	if size > maxBlock {
		return nil, malformed("its header is too large")
	}
	frame = append(frame, make([]byte, size)...)
	_, err := io.ReadFull(r, frame[9:])
	return frame, err
}

// headersPart takes the padding and the priority off.
func headersPart(flags byte, b []byte) ([]byte, bool) {
	c := cursor{rest: b}
	pad := 0
	if flags&flagPadded != 0 {
		pad = int(c.uint8())
	}
	if flags&flagPriority != 0 {
		c.skip(5)
	}
	if c.failed || pad > len(c.rest) {
		return nil, false
	}
	return c.rest[:len(c.rest)-pad], true
}

// judgeBlock judges the header of a request. A header without a method is a
// trailer, and says nothing of a host.
func (f *Flow) judgeBlock(decoder *hpack, block []byte) error {
	var methods, paths, hosts []string
	var fields []field
	clean := true
	err := decoder.decode(block, func(h field) {
		fields = append(fields, h)
		switch h.name {
		case ":method":
			methods = append(methods, h.value)
		case ":path":
			paths = append(paths, h.value)
		case ":authority", "host":
			hosts = append(hosts, h.value)
		}
		clean = clean && h.name == strings.ToLower(h.name)
	})
	if err != nil {
		return err
	}
	if len(methods) == 0 && len(paths) == 0 && len(hosts) == 0 {
		return nil
	}
	if len(hosts) == 2 && sameHost(hosts[0], hosts[1]) {
		hosts = hosts[:1]
	}
	if !clean || len(methods) != 1 || len(paths) > 1 || len(hosts) != 1 || hosts[0] == "" {
		return malformed("a method, path or host is missing, or given twice")
	}
	path := "/"
	if len(paths) == 1 {
		path = paths[0]
	}
	return f.judge2(methods[0], hosts[0], path, fields)
}

func (f *Flow) judge2(method, host, path string, fields []field) error {
	if err := checkHost(host); err != nil {
		return err
	}
	a := f.attempt
	a.conn.Requests++
	v := a.judge().Request(a.dest, method, hostOnly(host), path)
	if v.Allowed && v.HTTP {
		v = *unjudgeable("rules here are about single requests of HTTP/1")
	}
	if why := checkOverrides(fields, host, false); v.Allowed && why != "" {
		v = *unjudgeable(why)
	}
	if v.Allowed {
		return nil
	}
	return &denied{verdict: v, op: plan.OpRequest, server: hostOnly(host), method: method, path: path}
}
