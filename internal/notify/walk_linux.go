//go:build amd64 || arm64

package notify

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A walk looks for a path that may not be written, and for a link that may not be there.
type walk struct {
	judge *plan.Judge
	left  int
	links bool // links are judged
}

var tooLarge = plan.Verdict{
	Access: policy.Read, Rule: "paths.protect", Reason: "the folder holds too many files to look for protected names in it: move it in parts",
}

var unseen = plan.Verdict{
	Access: policy.Read, Rule: "paths.protect", Reason: "the folder cannot be looked into for protected names: make it readable",
}

// folder judges everything in a folder as if the folder were at path.
func (w *walk) folder(dir int, name, path string) (string, plan.Verdict, bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil { // its owner can hide what is in it even from the broker
		return path, unseen, true
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return path, unseen, true
	}
	for _, e := range entries {
		if w.left--; w.left < 0 {
			return path, tooLarge, true
		}
		at := path + "/" + e.Name()
		if v := w.judge.Path(at); v.Access != policy.Write {
			return at, v, true
		}
		if w.links && e.Type() == os.ModeSymlink {
			if text, err := linkText(fd, e.Name()); err != nil {
				return at, unseen, true
			} else if v, found := w.judge.Leads(at, text); found {
				return at, v, true
			}
		}
		if !e.IsDir() {
			continue
		}
		if p, v, found := w.folder(fd, e.Name(), at); found {
			return p, v, true
		}
	}
	return "", plan.Verdict{}, false
}
