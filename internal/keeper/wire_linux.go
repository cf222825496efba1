package keeper

import (
	"encoding/binary"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A connection begins with hello, from a keeper that has checked the client. The client sends a request, and then one byte
// for each signal. The keeper answers with one [answer].
const hello = 'K'

// maxRequest is more than Linux passes to a program.
const maxRequest = 16 << 20

// The kinds of an answer.
const (
	notTaken = 'N' // nothing has run
	finished = 'F' // the command has ended, with this status
)

// An answer is a kind and a status.
type answer [2]byte

// A request is a [Call] with the key of its client.
type request struct {
	key Key
	*Call
}

// encode returns the request as its length and its texts, each with its length. Arguments and variables may have any byte but NUL.
func (r *request) encode() []byte {
	b := &facts{}
	b.number(0)
	b.text(string(r.key), r.Dir)
	for _, list := range [][]string{r.Args, r.Env} {
		b.number(uint64(len(list)))
		b.text(list...)
	}
	text := b.Bytes()
	binary.LittleEndian.PutUint64(text, uint64(len(text)-8))
	return text
}

var errRequest = errors.New("the request cannot be read")

// decode is the reverse of encode, without the length at the start.
func (r *request) decode(text []byte) error {
	next := func() uint64 {
		if len(text) < 8 {
			text = nil
			return maxRequest
		}
		n := binary.LittleEndian.Uint64(text)
		text = text[8:]
		return n
	}
	bad := false
	word := func() string {
		n := next()
		if n > uint64(len(text)) {
			bad = true
			return ""
		}
		s := string(text[:n])
		text = text[n:]
		return s
	}
	list := func() (words []string) {
		n := next()
		for range n {
			if bad || n > maxRequest/8 {
				bad = true
				return nil
			}
			words = append(words, word())
		}
		return words
	}
	r.Call = &Call{}
	r.key, r.Dir = Key(word()), word()
	r.Args, r.Env = list(), list()
	if bad || len(text) > 0 {
		return errRequest
	}
	return nil
}

// receive reads a request and its streams from a socket. It returns io.EOF if the client wants nothing.
func receive(read func([]byte, []byte) (n, oobn int, err error)) (*request, error) {
	head, oob := make([]byte, 8), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, err := read(head, oob)
	if err != nil || n == 0 {
		return nil, errors.Join(io.EOF, err)
	}
	files, err := filesOf(oob[:oobn])
	if err != nil {
		return nil, err
	}
	r := &request{}
	err = errRequest
	if size := binary.LittleEndian.Uint64(head); n == len(head) && size <= maxRequest {
		text := make([]byte, size)
		if err = readFull(text, func(b []byte) (int, error) { n, _, err := read(b, nil); return n, err }); err == nil {
			err = r.decode(text)
		}
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	r.Files = files
	return r, nil
}

func readFull(b []byte, read func([]byte) (int, error)) error {
	for len(b) > 0 {
		n, err := read(b)
		if err != nil || n == 0 {
			return errors.Join(errRequest, err)
		}
		b = b[n:]
	}
	return nil
}

// filesOf takes the three streams out of a control message.
func filesOf(oob []byte) (files [3]*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return files, err
	}
	var fds []int
	for i := range messages {
		if list, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, list...)
		}
	}
	for i, fd := range fds {
		if i < len(files) {
			files[i] = os.NewFile(uintptr(fd), []string{"stdin", "stdout", "stderr"}[i])
		} else {
			unix.Close(fd)
		}
	}
	if len(fds) != len(files) {
		closeAll(files)
		return files, errRequest
	}
	return files, nil
}

func closeAll(files [3]*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
