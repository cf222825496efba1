package gitguard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// JudgePath decides about writing or making the file at a real path, for a caller that does not
// know what will be written. Root is that of Change. A missing folder is judged as one that is
// made first, empty. If the folder cannot be opened, nothing can be written in it either.
func JudgePath(path, root string) Verdict {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	folder := filepath.Dir(path)
	absent, at := 0, folder
	dir, err := unix.Open(at, flags, 0)
	for ; errors.Is(err, fs.ErrNotExist) && at != "/"; dir, err = unix.Open(at, flags, 0) {
		absent, at = absent+1, filepath.Dir(at)
	}
	if err != nil {
		return allowed
	}
	defer unix.Close(dir)
	op := Write
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		op = Create
	}
	v := Judge(Change{Op: op, At: Place{Dir: dir, Path: folder, Name: filepath.Base(path), absent: absent}, Root: root})
	if v.Action != Refuse && (v.Action != Allow || len(v.Fresh) > 0) {
		return Verdict{Rule: RuleConfig, Reason: "what is written there has to be checked; use git in a command"}
	}
	return v
}
