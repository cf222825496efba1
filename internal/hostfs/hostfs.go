// Package hostfs gives access to the machine's file tree: an interface with few calls,
// implemented by the live tree ([OS]) and by one recorded in a test ([Tree]).
package hostfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
)

// A Kind is the type of the file at a path.
type Kind int

// The kinds of file. Other is every type without a name here.
const (
	Missing Kind = iota
	Dir
	File
	Symlink
	Socket
	Device
	Other
)

var kindNames = []string{"missing", "dir", "file", "symlink", "socket", "device", "other"}

// String returns the kind's name.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "invalid"
	}
	return kindNames[k]
}

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, n := range kindNames {
		if n == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown kind of file %q", b)
}

// Info is the result of Lstat for one path.
type Info struct {
	Kind   Kind
	Target string      // of a symlink
	Mode   fs.FileMode // permission bits
	UID    int
}

// FS is the part of the file system that a plan is made from. Paths are clean and absolute.
// Lstat returns fs.ErrNotExist for a path that does not exist and fs.ErrPermission for one
// that may not be accessed.
type FS interface {
	Lstat(path string) (Info, error)
	// ReadDir returns the names in a folder, sorted.
	ReadDir(path string) ([]string, error)
}

// A Lister is an FS that can tell which names a folder does not contain.
type Lister interface {
	// Names returns the names in a folder, in no order. If ok is true, a name that is not
	// among them does not exist in the folder, except that it may exist if it differs from a
	// listed one only in the case of ASCII letters. ok is false if that is not certain, or not
	// cheap to find out.
	Names(dir string) (names []string, ok bool)
}

// A Writer is an FS that can tell where the caller may create files.
type Writer interface {
	// MayMake returns nil if files can be created in a folder, or why not.
	MayMake(dir string) error
}

// A Tree is a recorded FS: for each path a short text, "dir", "file", "exec" (a file with
// execute permission), "socket", "device", "denied" or "-> target". Parents of listed paths
// are folders. Tests use it to record a machine's file tree.
type Tree map[string]string

// Lstat implements FS.
func (t Tree) Lstat(p string) (Info, error) {
	notExist := &fs.PathError{Op: "lstat", Path: p, Err: fs.ErrNotExist}
	for d := path.Dir(p); ; d = path.Dir(d) {
		if s, ok := t[d]; ok {
			if s == "denied" {
				return Info{}, &fs.PathError{Op: "lstat", Path: p, Err: fs.ErrPermission}
			}
			if s != "dir" {
				return Info{}, notExist
			}
		}
		if d == "/" || p == "/" {
			break
		}
	}
	switch s, ok := t[p]; {
	case !ok:
		if p == "/" || t.hasBelow(p) {
			return Info{Kind: Dir, Mode: 0o755}, nil
		}
		return Info{}, notExist
	case s == "denied":
		return Info{Kind: Dir, Mode: 0o700}, nil
	case s == "dir":
		return Info{Kind: Dir, Mode: 0o755}, nil
	case s == "file":
		return Info{Kind: File, Mode: 0o644}, nil
	case s == "exec":
		return Info{Kind: File, Mode: 0o755}, nil
	case s == "socket":
		return Info{Kind: Socket, Mode: 0o755}, nil
	case s == "device":
		return Info{Kind: Device, Mode: 0o666}, nil
	case strings.HasPrefix(s, "-> "):
		return Info{Kind: Symlink, Target: s[3:], Mode: 0o777}, nil
	default:
		return Info{}, fmt.Errorf("recorded tree: %s: unknown text %q", p, s)
	}
}

// ReadDir implements FS.
func (t Tree) ReadDir(p string) ([]string, error) {
	info, err := t.Lstat(p)
	if err != nil {
		return nil, err
	}
	if info.Kind != Dir {
		return nil, &fs.PathError{Op: "readdir", Path: p, Err: fs.ErrInvalid}
	}
	prefix := strings.TrimSuffix(p, "/") + "/"
	var names []string
	for q := range t {
		if rest, ok := strings.CutPrefix(q, prefix); ok && rest != "" {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return slices.Compact(names), nil
}

func (t Tree) hasBelow(p string) bool {
	for q := range t {
		if strings.HasPrefix(q, p+"/") {
			return true
		}
	}
	return false
}
