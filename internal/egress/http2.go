package egress

import (
	"encoding/binary"
	"io"
	"strings"

	"golang.org/x/net/http2/hpack"
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
	// maxTable bounds the dynamic table. Servers allow 4096 bytes unless they say
	// otherwise; a client that uses more than its server allows fails there.
	maxTable = 64 << 10
)

// sendHTTP2 sends the client's side of plain HTTP/2, which gRPC without TLS uses. Each
// request is checked by the host that it names before its header is sent. All other
// frames pass unchanged.
func (f *Flow) sendHTTP2(in *stream) error {
	start := make([]byte, len(preface2))
	if _, err := io.ReadFull(in.buf, start); err != nil {
		return ignoreEOF(err)
	}
	if string(start) != preface2 {
		return malformed("the preface of HTTP/2 is not complete")
	}
	err := f.send(start)
	decoder := newHeaderDecoder()
	for err == nil {
		err = f.sendFrame(in, decoder)
	}
	return ignoreEOF(err)
}

// sendFrame checks and sends one frame, or all frames of one header.
func (f *Flow) sendFrame(in *stream, decoder *headerDecoder) error {
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
		fields, err := decoder.decode(block)
		if err != nil {
			return err
		}
		if err := f.judgeFields(fields); err != nil {
			return err
		}
		return f.send(raw)
	}
	return f.countSent(in.copyLength(f.upstream, 9+frameLength(head)))
}

func frameLength(head []byte) int64 {
	return int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
}

// readBlock reads the frames of one header. It returns them unchanged, and the header
// block that they contain.
func readBlock(in *stream) (raw, block []byte, err error) {
	var id uint32
	for range maxContinued {
		frame := make([]byte, 9)
		if _, err := io.ReadFull(in.buf, frame); err != nil {
			return nil, nil, noEOF(err)
		}
		size := frameLength(frame)
		if size > maxBlock {
			return nil, nil, malformed("its header is too large")
		}
		frame = append(frame, make([]byte, size)...)
		if _, err := io.ReadFull(in.buf, frame[9:]); err != nil {
			return nil, nil, noEOF(err)
		}
		isFirst := len(raw) == 0
		raw = append(raw, frame...)
		stream := binary.BigEndian.Uint32(frame[5:]) & (1<<31 - 1)
		part, ok := frame[9:], frame[3] == frameContinuation && stream == id
		if isFirst {
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

// headersPart removes the padding and the priority of a HEADERS frame.
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

// A headerDecoder decodes the header blocks of one connection. The meaning of a block
// depends on all blocks before it.
type headerDecoder struct {
	hpack  *hpack.Decoder
	fields []field
}

func newHeaderDecoder() *headerDecoder {
	d := &headerDecoder{}
	d.hpack = hpack.NewDecoder(4096, func(h hpack.HeaderField) { d.fields = append(d.fields, field{h.Name, h.Value}) })
	d.hpack.SetAllowedMaxDynamicTableSize(maxTable)
	d.hpack.SetMaxStringLength(maxBlock)
	return d
}

// decode returns the fields of a complete block.
func (d *headerDecoder) decode(block []byte) ([]field, error) {
	d.fields = nil
	_, err := d.hpack.Write(block)
	if err == nil {
		err = d.hpack.Close()
	}
	if err != nil {
		return nil, malformed("its header cannot be decoded")
	}
	return d.fields, nil
}

// judgeFields asks the rules about the header of a request. A header without method,
// path and host is a trailer.
func (f *Flow) judgeFields(fields []field) error {
	var methods, paths, hosts []string
	lower := true
	for _, h := range fields {
		switch h.name {
		case ":method":
			methods = append(methods, h.value)
		case ":path":
			paths = append(paths, h.value)
		case ":authority", "host":
			hosts = append(hosts, h.value)
		}
		lower = lower && h.name == strings.ToLower(h.name)
	}
	if len(methods) == 0 && len(paths) == 0 && len(hosts) == 0 {
		return nil
	}
	if len(hosts) == 2 && sameHost(hosts[0], hosts[1]) {
		hosts = hosts[:1]
	}
	if !lower || len(methods) != 1 || len(paths) > 1 || len(hosts) != 1 || hosts[0] == "" {
		return malformed("a method, path or host is missing, or given twice")
	}
	method, host, path := methods[0], hosts[0], "/"
	if len(paths) == 1 {
		path = paths[0]
	}
	if err := checkHost(host); err != nil {
		return err
	}
	return f.judgeHTTP(method, host, path, fields, false)
}
