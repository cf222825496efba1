// Package prober tries operations inside a sandbox and reports the result of each. It
// does not judge them: the process outside does, which can check the effects on the
// host.
//
// `cloche verify` and the conformance suite (backend/backendtest) run it as the command
// of a sandbox. The suite adds its own operations to the [Table].
package prober

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A Text is a string of any bytes that survives JSON. Paths and variables need not be
// valid UTF-8.
type Text string

// MarshalText writes the text as ASCII, with escapes.
func (s Text) MarshalText() ([]byte, error) { return []byte(strconv.QuoteToASCII(string(s))), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Text) UnmarshalText(b []byte) error {
	u, err := strconv.Unquote(string(b))
	*s = Text(u)
	return err
}

// Texts converts a list of strings.
func Texts(list []string) []Text {
	out := make([]Text, len(list))
	for i, s := range list {
		out[i] = Text(s)
	}
	return out
}

// An Attempt is one operation to try. Do is its name in a [Table]; the meaning of the
// other fields depends on it.
type Attempt struct {
	Do   string `json:"do"`
	Path Text   `json:"path,omitempty"`
	To   Text   `json:"to,omitempty"`
	Data Text   `json:"data,omitempty"`
	N    int64  `json:"n,omitempty"`
	M    int64  `json:"m,omitempty"`
}

// String describes the attempt for messages.
func (a Attempt) String() string {
	s := a.Do
	for _, f := range []Text{a.Path, a.To} {
		if f != "" {
			s += " " + strings.Trim(strconv.QuoteToASCII(string(f)), `"`)
		}
	}
	if a.N != 0 {
		s += " " + strconv.FormatInt(a.N, 10)
	}
	return s
}

// An Answer is the result of an attempt.
type Answer struct {
	// Errno is 0 if the attempt succeeded. Error is the whole text of the error.
	Errno syscall.Errno `json:"errno,omitempty"`
	Error string        `json:"error,omitempty"`
	Data  Text          `json:"data,omitempty"`
	List  []Text        `json:"list,omitempty"`
	N     int64         `json:"n,omitempty"`
	// Dev and Ino identify a file or a namespace.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

// OK reports whether the attempt succeeded.
func (a Answer) OK() bool { return a.Errno == 0 }

// A Table has operations by their names.
type Table map[string]func(Attempt) (Answer, error)

// Try makes an attempt in this process. It looks for the operation in more first.
func Try(a Attempt, more Table) Answer {
	f, ok := more[a.Do]
	if !ok {
		f, ok = operations()[a.Do]
	}
	if !ok {
		return Answer{Errno: syscall.ENOSYS, Error: "the prober does not know " + a.Do}
	}
	answer, err := f(a)
	if err == nil {
		return answer
	}
	answer.Error = err.Error()
	switch {
	case errors.As(err, &answer.Errno):
	case errors.Is(err, os.ErrDeadlineExceeded):
		answer.Errno = syscall.ETIMEDOUT
	default:
		answer.Errno = syscall.EIO
	}
	return answer
}

// Serve reads a list of attempts, makes them one after the other, and writes the list
// of answers.
func Serve(in io.Reader, out io.Writer) error {
	var attempts []Attempt
	if err := json.NewDecoder(in).Decode(&attempts); err != nil {
		return fmt.Errorf("the prober cannot read what to try: %w; it is started by Session.Verify", err)
	}
	answers := make([]Answer, len(attempts))
	for i, a := range attempts {
		answers[i] = Try(a, nil)
	}
	return json.NewEncoder(out).Encode(answers)
}
