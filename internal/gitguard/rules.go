package gitguard

import (
	"fmt"
	"path"
	"strings"
)

// What a refusal advises. Outside the sandbox the user may do all of it.
const (
	fixOutside = "do this outside of the sandbox if it is wanted"
	fixConfig  = "change it with `git config`, which renames a finished file into place; other settings outside of the sandbox"
	// fixReadable is for what only its owner keeps from the broker.
	fixReadable = "make it readable with chmod"
	fixOwn      = "remove or rename it outside of the sandbox"
)

const reasonUnreadable = "it cannot be looked into for what git would run"

// worktreeCommonDir is what git writes to X/worktrees/NAME/commondir, always:
// the way to X.
const worktreeCommonDir = "../..\n"

// overwrite judges opening an existing file for writing, and giving it a second name, by which
// it can be written.
func overwrite(p Place) Verdict {
	if v := p.hook(); v.Action == Refuse {
		return v
	}
	switch meaningOf(p.Name) {
	case config:
		if p.inGit() {
			return refuse(RuleConfig, p, "git's settings can name programs", fixConfig)
		}
	case commonDir:
		if p.inGit() || p.inWorktreeEntry() != no {
			return refuse(RuleCommonDir, p, "it tells git where to find settings and hooks", fixOutside)
		}
	case attributes:
		return p.attributes()
	}
	return allowed
}

// isSample reports whether git never runs a file of this name in the hooks folder: a sample, or
// the temporary name of a program that copies one, such as rsync's .NAME.sample.RANDOM. No hook of
// git has ".sample" in its name. Other files cannot be made there: a hook of the user's may read
// them.
func isSample(name string) bool { return strings.Contains(name, ".sample") }

// hook judges any change in the hooks of a git directory.
func (p Place) hook() Verdict {
	levels, is := p.inHooks()
	if !is || levels == 0 && isSample(p.Name) {
		return allowed
	}
	return refuse(RuleHooks, p, "git would run it outside of the sandbox", fixOutside)
}

func (p Place) attributes() Verdict {
	if !p.isInfoAttributes() {
		return allowed
	}
	return refuse(RuleAttributes, p, "it chooses which programs git runs on files", "use .gitattributes")
}

// leave judges that a name goes away, because it is removed or renamed.
func (c Change) leave(p Place) Verdict {
	if v := p.hook(); v.Action == Refuse {
		return v
	}
	// Only an empty folder can be removed, and the kernel checks that.
	empty := c.Op == Remove && p.at().kind(p.Name) == directory
	switch m := meaningOf(p.Name); m {
	case dotGit:
		if !empty {
			return c.leaveDotGit(p)
		}
	case head, objects, refs, commonDir:
		return leaveMark(p, m)
	case config:
		if p.inGit() {
			return c.leaveConfig(p)
		}
	case hooks:
		if !empty && p.inGit() {
			return checkHooks(p.at(), p)
		}
	case info:
		if !empty && p.inGit() {
			return checkInfo(p.at(), p)
		}
	case attributes:
		return p.attributes()
	}
	return allowed
}

// own reports whether the folder is the git directory of the workspace itself.
func (c Change) own(real string) bool {
	return c.Root != "" && path.Dir(real) == path.Clean(c.Root) && meaningOf(path.Base(real)) == dotGit
}

// leaveDotGit keeps the user's own repository where it is: what cannot be changed must not be
// replaced as a whole either. A `.git` file may go: the directory that it names is guarded by its
// own shape.
func (c Change) leaveDotGit(p Place) Verdict {
	switch p.at().kind(p.Name) {
	case directory:
	case unreadable:
		return refuse(RuleConfig, p, reasonUnreadable, fixReadable)
	default:
		return allowed
	}
	if c.own(p.String()) {
		return refuse(RuleOwn, p, "it is the repository of the workspace", fixOwn)
	}
	inside := folder{fd: p.Dir, sub: p.Name}
	if shapeOf(inside, "").git() == yes {
		return allowed
	}
	return stripped(inside, p, p.Dir, p.Name)
}

// leaveMark judges that a folder loses one of the names that make it a git directory, and so
// its protection.
func leaveMark(p Place, m meaning) Verdict {
	before := shapeOf(p.at(), p.Path)
	if before.git() == no || before.with(m, false).git() == yes {
		return allowed
	}
	return stripped(p.at(), p, p.Dir, "")
}

// stripped refuses to take the protection from a folder with hooks or settings that a command
// could not have made.
func stripped(f folder, p Place, dir int, name string) Verdict {
	v := enter(f, p, dir, name)
	v.Fresh = nil
	return v
}

// leaveConfig lets settings go that the command could have made, so that it can remove its own
// repositories.
func (c Change) leaveConfig(p Place) Verdict {
	if p.at().kind(p.Name) == missing {
		return allowed
	}
	if c.own(p.Path) {
		return refuse(RuleOwn, p, "it is the repository of the workspace", fixOwn)
	}
	if _, err := checkedConfig(p.at(), p.Name, p); err != nil {
		return refuse(RuleConfig, p, err.Error(), fixOwn)
	}
	return allowed
}

// appear judges that something new is at the place.
func (c Change) appear() Verdict {
	p := c.At
	if v := p.hook(); v.Action == Refuse {
		return v
	}
	switch m := meaningOf(p.Name); m {
	case dotGit:
		return c.appearDotGit()
	case head, objects, refs:
		return appearMark(p, m)
	case config:
		if p.inGit() {
			return c.appearConfig()
		}
	case commonDir:
		return c.appearCommonDir()
	case hooks, info:
		if p.inGit() {
			return c.appearFolder(m)
		}
	case attributes:
		return p.attributes()
	}
	return allowed
}

// appearDotGit judges what is put at .git. A new directory is guarded from then
// on, and a file leads only to a directory that git takes for one of its own,
// which is guarded by its shape. A symbolic link leads `git init` to any
// directory, whose settings and hooks it keeps: git itself makes none. A
// directory that is renamed is judged by what is in it, unless it was a git
// directory before: then it has been guarded all along.
func (c Change) appearDotGit() Verdict {
	k := regular
	switch c.Op {
	case Symlink:
		k = link
	case Rename, Link:
		k = c.From.at().kind(c.From.Name)
	default:
	}
	switch k {
	case link:
		return refuse(RuleConfig, c.At, "git would follow a symbolic link to settings and hooks that nobody checked", "use a file: echo 'gitdir: DIRECTORY' >.git")
	case unreadable:
		return refuse(RuleConfig, c.At, reasonUnreadable, fixReadable)
	case directory:
		inside := folder{fd: c.From.Dir, sub: c.From.Name}
		if isGit(inside, c.From.String()) != yes {
			return enter(inside, c.From, c.From.Dir, c.From.Name)
		}
	}
	return allowed
}

// appearMark judges a folder that gets one of the names that make it a git
// directory.
func appearMark(p Place, m meaning) Verdict {
	before := shapeOf(p.at(), p.Path)
	if before.git() == yes || before.with(m, true).git() == no {
		return allowed
	}
	return enter(p.at(), p, p.Dir, "")
}

// appearFolder judges what is put at hooks or info of a git directory: a new
// folder, or one that is moved there and holds nothing to run.
func (c Change) appearFolder(m meaning) Verdict {
	if c.Op == Mkdir {
		return allowed
	}
	if c.Op != Rename || c.From.at().kind(c.From.Name) != directory {
		return refuse(RuleHooks, c.At, "git would follow it to other hooks or attributes", "make it a folder")
	}
	if m == hooks {
		return checkHooks(c.From.at(), c.From)
	}
	return checkInfo(c.From.at(), c.From)
}

// appearCommonDir writes the only content that a commondir of a linked worktree
// has; `git worktree add` writes the same to a descriptor that leads nowhere. A
// directory that the commondir makes a git directory is judged by what is in it.
func (c Change) appearCommonDir() Verdict {
	p := c.At
	before := shapeOf(p.at(), p.Path)
	becomes := before.git() != yes && before.with(commonDir, true).git() != no
	if !c.isWorktreeCommonDir() {
		if before.git() == no && !becomes {
			return allowed
		}
		return refuse(RuleCommonDir, p, "it tells git where to find settings and hooks", fixOutside)
	}
	v := c.install(p.at().owned(worktreeCommonDir))
	if v.Action == Refuse || !becomes {
		return v
	}
	inside := enter(p.at(), p, p.Dir, "")
	if inside.Action == Refuse {
		return inside
	}
	v.Fresh = append(inside.Fresh, v.Fresh...)
	return v
}

// isWorktreeCommonDir reports whether git could make the commondir of a linked worktree by this
// change.
func (c Change) isWorktreeCommonDir() bool {
	if c.At.inWorktreeEntry() != yes {
		return false
	}
	switch c.Op {
	case Create:
		return true
	case Rename, Link:
		return c.From.at().kind(c.From.Name) == regular
	default:
		return false
	}
}

// appearConfig judges settings that are put into a git directory. They can be checked only when
// they are complete: as a file that is renamed.
func (c Change) appearConfig() Verdict {
	p := c.At
	if c.Op == Create && c.isWorktreeConfig() {
		return c.install(folder{fd: p.Dir, sub: up(2)}.read("config.worktree"))
	}
	if c.Op != Rename && c.Op != Link {
		return refuse(RuleConfig, p, "git's settings can name programs", fixConfig)
	}
	file, err := c.checkedChange()
	if err != nil {
		return refuse(RuleConfig, p, err.Error(), fixOutside) // git config itself does this
	}
	return c.install(file, nil)
}

// isWorktreeConfig reports whether git is about to copy the config.worktree of the main worktree
// for a new one. Git writes the copy in place.
func (c Change) isWorktreeConfig() bool {
	main := folder{fd: c.At.Dir, sub: up(2)}
	return c.At.Name == "config.worktree" && c.At.inWorktreeEntry() == yes && main.kind("config.worktree") == regular
}

func (c Change) install(f File, err error) Verdict {
	if err != nil {
		return refuse(RuleConfig, c.At, err.Error(), fixOutside)
	}
	f.Dir, f.Name = c.At.Dir, c.At.Name
	f.Exclusive = c.Op != Rename || c.NoReplace
	return Verdict{Action: Install, Fresh: []File{f}}
}

// checkHooks judges a hooks folder that comes or goes.
func checkHooks(f folder, p Place) Verdict {
	switch f.kind(p.Name) {
	case missing:
		return allowed
	case directory:
		names, err := f.names(p.Name)
		if err != nil {
			return refuse(RuleHooks, p, err.Error(), fixOutside)
		}
		for _, name := range names {
			if !isSample(name) {
				return refuse(RuleHooks, p, fmt.Sprintf("git would run %q in it outside of the sandbox", name), fixOutside)
			}
		}
		return allowed
	}
	return refuse(RuleHooks, p, "it is not a folder, and git would follow it", fixOutside)
}

// checkInfo judges an info folder that comes or goes.
func checkInfo(f folder, p Place) Verdict {
	switch f.kind(p.Name) {
	case missing, regular:
		return allowed
	case directory:
		if f.kind(p.Name+"/attributes") == missing {
			return allowed
		}
	}
	return refuse(RuleAttributes, p, "it holds attributes, which choose programs that git runs on files", fixOutside)
}
