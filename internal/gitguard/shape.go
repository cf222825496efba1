package gitguard

import (
	"fmt"
	"path"
)

// An answer to a question about a directory. A command can make a directory of
// its own unreadable for the broker, so "unknown" is an answer of its own: it
// counts as yes where a yes protects, and as no where a yes would allow.
type answer int

// The answers, in an order in which min is "and" and max is "or".
const (
	no answer = iota
	unknown
	yes
)

func is(b bool) answer {
	if b {
		return yes
	}
	return no
}

// A shape is what git checks to find whether a directory is a git directory
// (is_git_directory in its setup.c): HEAD, and objects and refs in the directory
// or in the one that commondir names. The target of a commondir has objects
// and refs, too. A directory called .git counts before it has any of them:
// `git init` would take over what lies in it.
type shape struct {
	named, head, objects, refs, commonDir answer
}

// git reports whether the directory is guarded. It requires less than git does:
// GIT_OBJECT_DIRECTORY makes objects superfluous, and guarding too early costs nothing.
func (s shape) git() answer {
	return max(s.named, min(s.head, max(s.objects, s.refs, s.commonDir)), min(s.objects, s.refs))
}

// with is the shape after a name has come or gone.
func (s shape) with(m meaning, there bool) shape {
	switch m {
	case head:
		s.head = is(there)
	case objects:
		s.objects = is(there)
	case refs:
		s.refs = is(there)
	case commonDir:
		s.commonDir = is(there)
	}
	return s
}

// shapeOf looks at a directory whose path is real.
func shapeOf(f folder, real string) shape {
	if meaningOf(path.Base(real)) == dotGit {
		return shape{named: yes}
	}
	return shape{head: f.has("HEAD"), objects: f.has("objects"), refs: f.has("refs"), commonDir: f.has("commondir")}
}

// isGit is shapeOf(f, real).git() with as few system calls as possible: most directories have
// neither HEAD nor objects.
func isGit(f folder, real string) answer {
	if meaningOf(path.Base(real)) == dotGit {
		return yes
	}
	if f.has("HEAD") == no && f.has("objects") == no {
		return no
	}
	return shapeOf(f, real).git()
}

// A kind is what a name in a directory is, as far as it matters here.
type kind int

const (
	missing kind = iota
	regular
	directory
	link
	other
	unreadable // it is not known
)

func (f folder) has(name string) answer {
	switch f.kind(name) {
	case missing:
		return no
	case unreadable:
		return unknown
	}
	return yes
}

// at is the folder of a place.
func (p Place) at() folder {
	f, _ := p.above(0)
	return f
}

// above is the folder that many levels above the one of the place.
func (p Place) above(levels int) (folder, string) {
	real := pathUp(p.Path, levels)
	if levels < p.absent {
		return folder{fd: -1, absent: true}, real
	}
	return folder{fd: p.Dir, sub: up(levels - p.absent)}, real
}

// inGit reports whether the place is directly in a git directory, or may be.
func (p Place) inGit() bool { return isGit(p.at(), p.Path) != no }

// inHooks reports whether the place is, or may be, in the hooks folder of a git directory, and how
// many levels below it.
func (p Place) inHooks() (levels int, is bool) {
	for skip := 0; ; skip = levels + 1 {
		var found bool
		if levels, found = hooksAbove(p.Path, skip); !found {
			return 0, false
		}
		if isGit(p.above(levels+1)) != no {
			return levels, true
		}
	}
}

// isInfoAttributes reports whether the place is, or may be, info/attributes of a git directory.
func (p Place) isInfoAttributes() bool {
	return meaningOf(p.Name) == attributes && meaningOf(path.Base(p.Path)) == info && isGit(p.above(1)) != no
}

// inWorktreeEntry reports whether the place is in X/worktrees/NAME of a git directory X.
func (p Place) inWorktreeEntry() answer {
	if path.Base(path.Dir(p.Path)) != "worktrees" {
		return no
	}
	return isGit(p.above(2))
}

func (p Place) String() string { return path.Join(p.Path, p.Name) }

func refuse(rule string, p Place, reason, fix string) Verdict {
	return Verdict{Rule: rule, Reason: fmt.Sprintf("%s: %s", p, reason), Fix: fix}
}
