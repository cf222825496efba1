package backendtest

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A text is a string of any bytes that survives JSON: paths and variables need
// not be UTF-8.
type text string

// MarshalText writes the text in ASCII.
func (s text) MarshalText() ([]byte, error) { return []byte(strconv.QuoteToASCII(string(s))), nil }

// UnmarshalText reads it back.
func (s *text) UnmarshalText(b []byte) error {
	u, err := strconv.Unquote(string(b))
	*s = text(u)
	return err
}

// An op is one thing that the probe tries inside. What the fields mean depends
// on Do.
type op struct {
	Do   string `json:"do"`
	Path text   `json:"path,omitempty"`
	To   text   `json:"to,omitempty"`
	Data text   `json:"data,omitempty"`
	N    int64  `json:"n,omitempty"`
	M    int64  `json:"m,omitempty"`
}

// String names the attempt in messages.
func (o op) String() string {
	s := o.Do
	for _, f := range []text{o.Path, o.To} {
		if f != "" {
			s += " " + strings.Trim(strconv.QuoteToASCII(string(f)), `"`)
		}
	}
	if o.N != 0 {
		s += " " + strconv.FormatInt(o.N, 10)
	}
	return s
}

// An answer is how an attempt went.
type answer struct {
	Op op `json:"-"`
	// Error is empty if the attempt worked; Errno is its number if it has one.
	Error string        `json:"error,omitempty"`
	Errno syscall.Errno `json:"errno,omitempty"`
	Data  text          `json:"data,omitempty"`
	List  []text        `json:"list,omitempty"`
	N     int64         `json:"n,omitempty"`
}

func (a answer) ok() bool { return a.Error == "" }

// probeArgs are the arguments that make this program the probe.
func (c *check) probeArgs(ops ...op) (name string, args []string) {
	name, err := os.Executable()
	c.must(err)
	list, err := json.Marshal(ops)
	c.must(err)
	return name, []string{probeWord, c.token, string(list)}
}
