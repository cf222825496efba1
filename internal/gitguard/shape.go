package gitguard

import (
	"fmt"
	"path"
)

// A shape is what git looks at to tell whether a folder is a git directory
// (is_git_directory in its setup.c): HEAD, and objects and refs in the folder
// or in the one that commondir names. The target of a commondir has objects
// and refs, too. A folder called .git counts before it has any of them:
// `git init` would take over what lies in it.
type shape struct {
	named                          bool
	head, objects, refs, commonDir bool
}

// git says whether the folder is guarded. It asks for less than git does:
// GIT_OBJECT_DIRECTORY makes objects superfluous, and what is guarded too
// early costs nothing.
func (s shape) git() bool {
	return s.named || s.head && (s.objects || s.refs || s.commonDir) || s.objects && s.refs
}

// with is the shape after a name has come or gone.
func (s shape) with(m meaning, there bool) shape {
	switch m {
	case head:
		s.head = there
	case objects:
		s.objects = there
	case refs:
		s.refs = there
	case commonDir:
		s.commonDir = there
	}
	return s
}

// shapeOf looks at a folder whose path is real.
func shapeOf(f folder, real string) shape {
	s := shape{named: meaningOf(path.Base(real)) == dotGit}
	if s.named {
		return s
	}
	s.head, s.objects, s.refs = f.has("HEAD"), f.has("objects"), f.has("refs")
	s.commonDir = s.head && f.has("commondir")
	return s
}

// isGit is shapeOf(f, real).git() with as few looks as possible: most folders
// have neither HEAD nor objects.
func isGit(f folder, real string) bool {
	if meaningOf(path.Base(real)) == dotGit {
		return true
	}
	if f.has("HEAD") {
		return f.has("objects") || f.has("refs") || f.has("commondir")
	}
	return f.has("objects") && f.has("refs")
}

// A kind is what a name in a folder is, as far as it matters here.
type kind int

const (
	missing kind = iota
	regular
	directory
	link
	other // also: cannot be told
)

// at is the folder of a place.
func (p Place) at() folder { return folder{fd: p.Dir} }

// above is the folder that many levels above the one of the place.
func (p Place) above(levels int) (folder, string) {
	if levels == 0 {
		return p.at(), p.Path
	}
	return folder{fd: p.Dir, sub: up(levels)}, pathUp(p.Path, levels)
}

// inGit says whether the place is directly in a git directory.
func (p Place) inGit() bool { return isGit(p.at(), p.Path) }

// inHooks says whether the place is in the hooks of a git directory, and how
// many levels below them.
func (p Place) inHooks() (levels int, is bool) {
	for skip := 0; ; skip = levels + 1 {
		var found bool
		if levels, found = hooksAbove(p.Path, skip); !found {
			return 0, false
		}
		if isGit(p.above(levels + 1)) {
			return levels, true
		}
	}
}

// isInfoAttributes says whether the place is info/attributes of a git
// directory.
func (p Place) isInfoAttributes() bool {
	return meaningOf(p.Name) == attributes && meaningOf(path.Base(p.Path)) == info && isGit(p.above(1))
}

// inWorktreeEntry says whether the place is in X/worktrees/NAME of a git
// directory X.
func (p Place) inWorktreeEntry() bool {
	return path.Base(path.Dir(p.Path)) == "worktrees" && isGit(p.above(2))
}

func (p Place) String() string { return path.Join(p.Path, p.Name) }

func refuse(rule string, p Place, reason, fix string) Verdict {
	return Verdict{Rule: rule, Reason: fmt.Sprintf("%s: %s", p, reason), Fix: fix}
}
