package verify

import "syscall"

// An attempt is one thing that the prober does. What the fields mean depends on
// Do. Bytes, and not strings, hold paths, which need not be UTF-8.
type attempt struct {
	Do   string `json:"do"`
	Path []byte `json:"path,omitempty"`
	To   []byte `json:"to,omitempty"`
	N    int64  `json:"n,omitempty"`
}

// A request is what the prober reads from its standard input.
type request struct {
	// Token marks names and messages, and salts the hashes of what is read:
	// contents and values of variables never leave the sandbox.
	Token    string    `json:"token"`
	Attempts []attempt `json:"attempts"`
}

// An answer is how an attempt went.
type answer struct {
	// Errno is 0 if the attempt worked.
	Errno syscall.Errno `json:"errno,omitempty"`
	N     int64         `json:"n,omitempty"`
	Data  []byte        `json:"data,omitempty"`
	Names [][]byte      `json:"names,omitempty"`
	// Dev and Ino are the identity of a file or of a namespace.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

func (a answer) ok() bool { return a.Errno == 0 }

// on is an attempt at a path.
func on(do, path string) attempt { return attempt{Do: do, Path: []byte(path)} }
