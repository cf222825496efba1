package review

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// openedFile lists the opened folders, so that a command that is killed does not leave them open.
func (r *Review) openedFile() string { return filepath.Join(r.path, "opened") }

// noteOpened notes a folder before it is opened, for closeFolders.
func (r *Review) noteOpened(t *root, rel string, mode uint32) {
	o := openedFolder{t.Layer, []byte(rel), mode & 0o7777}
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
	r.opened = slices.DeleteFunc(r.opened, func(old openedFolder) bool { return old.Layer == o.Layer && string(old.Rel) == string(o.Rel) })
	r.opened = append(r.opened, o)
}

// closeFolders gives the opened folders their modes back, the last first: it may lie in another one.
func (r *Review) closeFolders() {
	if len(r.opened) == 0 {
		return
	}
	for _, o := range slices.Backward(r.opened) {
		i := slices.IndexFunc(r.meta.Roots, func(t root) bool { return t.Layer == o.Layer })
		if i < 0 {
			continue
		}
		upper, err := openTree(r.layer(r.meta.Roots[i]).Upper)
		if err != nil {
			continue
		}
		if d, name, err := upper.parent(string(o.Rel)); err == nil {
			_ = chmodFolder(d, name, o.Mode) // gone, if it was applied
			unix.Close(d)
		}
		upper.close()
	}
	r.opened = nil
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
	for _, o := range slices.Backward(r.opened) {
		if o.Layer == t.Layer && string(o.Rel) == rel {
			return mode&unix.S_IFMT | o.Mode
		}
	}
	return mode
}
