// Package gitguard decides which changes of a directory git would turn into code
// that runs outside the sandbox.
//
// A command may use git freely in what it can write: commit, branch, fetch,
// clone, add worktrees and submodules. It must not leave anything behind that
// the user's next `git status` runs: a hook, a setting that names a program, a
// file that leads git to another directory of settings. Names are not enough for
// that. A git directory may be called anything; a `.git` file, a bare
// repository or a worktree leads git to it. So a directory is guarded by its
// shape: by what makes git take it for one of its own.
//
// The invariant: in every directory that git could take for a git directory,
// everything that git runs, or reads settings from, is the user's own or has been
// checked and written by the broker itself. A directory counts if it is called
// .git, or has HEAD and one of objects, refs and commondir, or has objects and
// refs, whatever these are: a file, directory, link, pipe or socket. In such a
// directory hooks is a directory whose files are the user's or samples, config and
// config.worktree are files that hold the user's settings and harmless ones and
// that no process of the sandbox has open, commondir is the user's or the one that
// git writes for a linked worktree, which leads two levels up, and info has no
// attributes but the user's. A .git that is a symbolic link is the user's own: a command makes
// none. [Judge] keeps this for each single change, if changes come one at a time:
// a change in such a directory, a change that makes a directory one, and a change
// that takes its protection away, which is allowed only where everything in it
// could have been written by the command. What cannot be read is unknown,
// and unknown never allows.
//
// What it does not see: writes through a hard link that the user made from a
// hook to an ordinary name before; programs that the user's own settings run
// from the workspace (see [Sinks]); changes of modes and times; what the user
// types next, such as `git rebase --continue` of a rebase that the command
// began, or `git init --bare` in an ordinary directory that has a file config;
// remotes in files of .git/remotes and .git/branches, which name an address and
// no program; short names of files on FAT.
package gitguard

import "time"

// An Op is a kind of change of a folder.
type Op int

// The kinds of changes. A name is new in the first five and Rename.
const (
	// Create makes and opens a file that is not there yet.
	Create Op = iota
	// Node makes a file, pipe or socket without opening it, by mknod or bind.
	Node
	Mkdir
	Symlink
	// Link puts a second name for the file From.
	Link
	// Rename puts From there, in place of what is there.
	Rename
	// Write opens an existing file for writing, truncated or not.
	Write
	Truncate
	// Remove takes a name away: unlink or rmdir.
	Remove
)

// A Place is a name in a folder.
type Place struct {
	// Dir is a descriptor of the folder; O_PATH is enough.
	Dir int
	// Path is the real path of the folder, with no symbolic link in it.
	Path string
	// Name is one component, neither "." nor "..".
	Name string

	// absent is how many folders at the end of Path do not exist. Dir is then of the one
	// above them.
	absent int
}

// A Change is one system call, judged before it is performed.
type Change struct {
	Op Op
	At Place
	// From is the source of a Rename or Link.
	From Place
	// Exchange is a Rename that puts At where From was.
	Exchange bool
	// NoReplace is a Rename that fails if there is something at At.
	NoReplace bool
	// Root is the path of the guarded root around At. A `.git` directly in it
	// is the user's own: its settings can be changed, and not removed.
	Root string
}

// An Action is what is to be done with a change.
type Action int

const (
	// Refuse is the zero value: EACCES.
	Refuse Action = iota
	// Allow performs the change, after Verdict.Put.
	Allow
	// Install calls Verdict.Put in place of the change, which then has
	// succeeded. After a Rename the source is to be removed; for a Create the
	// caller is to get a descriptor of some other, nameless file.
	Install
)

// A Verdict is the answer to one change.
type Verdict struct {
	Action Action
	// Rule, Reason and Fix are set for Refuse.
	Rule, Reason, Fix string
	// Fresh are files that are to be written anew, because a process may still have the old one
	// open.
	Fresh []File
}

// A File is a file that the broker writes itself, with content that has been
// checked. No process of the sandbox has ever had it open.
type File struct {
	// Dir is a descriptor of the Change, Folder a folder in it or "".
	Dir    int
	Folder string
	Name   string

	Content  []byte
	Mode     uint32
	UID, GID int
	// Modified, unless zero, is the time of the file that it replaces: programs that
	// copy compare times.
	Modified time.Time
	// Exclusive makes Put fail with EEXIST where there is such a file.
	Exclusive bool
}

// Put makes the fresh files. It does nothing if there are none.
func (v Verdict) Put() error {
	for _, f := range v.Fresh {
		if err := f.put(); err != nil {
			return err
		}
	}
	return nil
}

// The rules that a refusal names.
const (
	RuleConfig     = "git.config"
	RuleHooks      = "git.hooks"
	RuleCommonDir  = "git.commondir"
	RuleAttributes = "git.attributes"
	RuleOwn        = "git.own"
)

var allowed = Verdict{Action: Allow}

// Notable reports whether the verdict about a change depends on more than its own names. If so,
// no other change may come between the verdict and the change itself.
func Notable(c Change) bool {
	return c.Op == Rename || notable(c.At) || c.Op == Link && notable(c.From)
}

// Judge decides about one change. It makes no system call unless a name of
// the change means something to git.
func Judge(c Change) Verdict {
	if v := c.jj(); v.Action == Refuse {
		return v
	}
	two := c.Op == Rename || c.Op == Link
	if !notable(c.At) && !(two && notable(c.From)) {
		return allowed
	}
	switch {
	case c.Op == Rename && c.From.String() == c.At.String():
		return allowed // the kernel does nothing
	case c.Exchange:
		return c.exchange()
	case c.Op == Rename:
		if v := c.leave(c.From); v.Action == Refuse {
			return v
		}
	case c.Op == Link:
		if v := overwrite(c.From); v.Action == Refuse {
			return v
		}
	case c.Op == Remove:
		return c.leave(c.At)
	case c.Op == Write, c.Op == Truncate:
		return overwrite(c.At)
	}
	return c.appear()
}

// exchange judges two renames at once. Git itself never exchanges files, so a change that would
// have to be performed differently is refused.
func (c Change) exchange() Verdict {
	there := Change{Op: Rename, At: c.At, From: c.From, Root: c.Root}
	back := Change{Op: Rename, At: c.From, From: c.At, Root: c.Root}
	for _, one := range []Change{there, back} {
		v := Judge(one)
		if v.Action == Refuse {
			return v
		}
		if v.Action == Install || v.Fresh != nil {
			return refuse(RuleConfig, one.At, "an exchange cannot be checked", "rename in two steps")
		}
	}
	return allowed
}
