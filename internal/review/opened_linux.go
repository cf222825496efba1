package review

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openedFile lists the opened folders, so that a command that is killed does not leave them open.
func (r *Review) openedFile() string { return filepath.Join(r.path, "opened") }

// openFolder opens a folder of an upper tree until closeFolders, if its user may not change it.
func (r *Review) openFolder(t *root, rel string, dir int, name string, mode uint32) error {
	if mode&0o700 == 0o700 {
		return nil
	}
	r.noteOpened(t, rel, mode)
	return chmodFolder(dir, name, mode&0o7777|0o700)
}

// noteOpened notes a folder before it is opened, for closeFolders.
func (r *Review) noteOpened(t *root, rel string, mode uint32) {
	o := openedFolder{Layer: t.Layer, Rel: []byte(rel), Mode: mode & 0o7777}
	r.addOpened(o)
	text, err := json.Marshal(o)
	if err != nil {
		panic("bug: " + err.Error())
	}
	// On a full disk, a kill leaves the folder open to its user.
	if f, err := os.OpenFile(r.openedFile(), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err == nil {
		_, _ = f.Write(append(text, '\n'))
		f.Close()
	}
}

// addOpened adds a folder to the list; it counts instead of an earlier one at the same path.
func (r *Review) addOpened(o openedFolder) {
	if r.openedAt == nil {
		r.openedAt = map[string]int{}
	}
	if i, ok := r.openedAt[o.key()]; ok {
		r.opened[i].again = true
	}
	r.openedAt[o.key()] = len(r.opened)
	r.opened = append(r.opened, o)
}

// key is the same for all openings of a folder.
func (o *openedFolder) key() string { return strconv.Itoa(o.Layer) + "/" + string(o.Rel) }

// closeFolders gives the opened folders their modes back, the last first: it may lie in another one.
func (r *Review) closeFolders() {
	if len(r.opened) == 0 {
		return
	}
	uppers := map[int]tree{}
	for i := range r.meta.Roots {
		if upper, err := openTree(r.layer(r.meta.Roots[i]).Upper); err == nil {
			uppers[r.meta.Roots[i].Layer] = upper
			defer upper.close()
		}
	}
	for _, o := range slices.Backward(r.opened) {
		upper, ok := uppers[o.Layer]
		if !ok || o.again {
			continue
		}
		if d, name, err := upper.parent(string(o.Rel)); err == nil {
			_ = chmodFolder(d, name, o.Mode) // gone, if it was applied
			unix.Close(d)
		}
	}
	r.opened, r.openedAt = nil, nil
	_ = os.Remove(r.openedFile()) // or they get their modes once more
}

// closeLeftOpen closes what a command that was killed has left open.
func (r *Review) closeLeftOpen() error {
	text, err := os.ReadFile(r.openedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var o openedFolder
		if json.Unmarshal([]byte(line), &o) == nil { // else the disk was full
			r.addOpened(o)
		}
	}
	r.closeFolders()
	return nil
}

// modeOf is the mode that a folder of an upper tree has, or is to have.
func (r *Review) modeOf(t *root, rel string, mode uint32) uint32 {
	o := openedFolder{Layer: t.Layer, Rel: []byte(rel)}
	if i, ok := r.openedAt[o.key()]; ok {
		return mode&unix.S_IFMT | r.opened[i].Mode
	}
	return mode
}
