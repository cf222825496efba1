// Package review is the store of reviews: what commands changed while their
// writable paths were shown copy-on-write, so that a person can look at the
// changes before they count.
//
// A review has a layer for each writable path, its root. A layer is the upper
// folder of an overlayfs mount with the option userxattr, or a copy where the
// root is a file. Begin makes the layers, and the caller mounts them. This package never
// mounts: it reads an upper folder without any privilege.
//
// The store is in cloche's own state folder, which no sandbox shows. Everything in a
// layer is the work of the command: names, links and modes in it are hostile.
package review

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// A Store is the folder with all reviews of a user.
type Store struct{ dir string }

// Open returns the store in a folder, which need not exist.
func Open(dir string) Store { return Store{dir} }

// A Layer is where the changes below one root go.
type Layer struct {
	// Root is the real path of a folder or file of the host.
	Root string
	// Upper and Work are the folders for overlayfs. For a root that is a file, Work is empty
	// and Upper is a copy of the file, to be bound over it.
	Upper, Work string
}

// IsFile reports whether the root is a file.
func (l Layer) IsFile() bool { return l.Work == "" }

// A Review is an open review. It is locked until Close.
type Review struct {
	path string // its folder in the store
	meta meta
	lock *os.File
	// opened are folders of the upper trees whose modes were changed for a while, and openedAt where the last opening of each is.
	opened   []openedFolder
	openedAt map[string]int
	// keeping is held while originals are written, which ends when the review is closed.
	keeping sync.Mutex
	closed  bool
	// synced is closed when the record of a new review is on the disk; nil if it already is.
	synced chan struct{}
}

// An openedFolder is a folder of an upper tree that its user may not look into or change, with the mode that it is to have. While
// it is read or changed it has another mode.
type openedFolder struct {
	Layer int    `json:"layer"`
	Rel   []byte `json:"rel"`
	Mode  uint32 `json:"mode"`
	// again: there is a later opening of the same folder, which counts instead.
	again bool
}

// Layers returns the layers, one for each root, in the order in which the roots were added.
func (r *Review) Layers() []Layer {
	var layers []Layer
	for _, root := range r.meta.Roots {
		layers = append(layers, r.layer(root))
	}
	return layers
}

// LockFile is the open file whose lock keeps the review. A process that inherits it keeps the review
// locked for as long as it lives.
func (r *Review) LockFile() *os.File { return r.lock }

// Name returns the name, and Workspace the folder, that the review was begun with.
func (r *Review) Name() string { return r.meta.Name }

// Workspace returns the folder that the review was begun for.
func (r *Review) Workspace() string { return r.meta.Workspace }

// DefaultName is the name of a review that was given none.
const DefaultName = "default"

// ErrInUse means that another process has the review open.
var ErrInUse = errors.New("a command of this review still runs")

// ErrNone means that there is no such review.
var ErrNone = errors.New("there is no such review")

// A RootError says why a path cannot be a root.
type RootError struct{ Root, Reason, Fix string }

// Error names the root, the reason and the fix.
func (e *RootError) Error() string {
	return fmt.Sprintf("cannot review %s: %s; %s", e.Root, e.Reason, e.Fix)
}

// CheckName reports what is wrong with the name of a review.
func CheckName(name string) error {
	odd := func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("._-", c)
	}
	if name == "" || len(name) > 64 || strings.ContainsRune("._-", rune(name[0])) || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%q is no name for a review: use up to 64 letters, digits, dots, dashes and underscores, with a letter or digit first", name)
	}
	return nil
}

// A Status is what is known of a review without reading its changes.
type Status struct {
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"`
	Roots     []string  `json:"roots"`
	Began     time.Time `json:"began"`
	// Files and Size are what the review keeps on the disk.
	Files int   `json:"files"`
	Size  int64 `json:"size"`
	// Running: a command has the review open. CanUndo: the last apply can be undone.
	Running bool `json:"running"`
	CanUndo bool `json:"can_undo"`
}

// MaxText bounds a file that is shown or compared line by line.
const MaxText = 8 << 20

// A Content is one side of a change.
type Content struct {
	Exists bool
	Type   string
	Mode   uint32
	Size   int64
	// Text is the content of a file, or the target of a link.
	Text     []byte
	TooLarge bool // there is no Text
}

// IsBinary reports whether a file has to be shown as a whole, as git decides it: by a zero byte near its beginning.
func (c *Content) IsBinary() bool {
	return c.TooLarge || bytes.IndexByte(c.Text[:min(len(c.Text), 8000)], 0) >= 0
}
