package gitguard

import (
	"errors"
	"fmt"
)

// maxConfig bounds what is read of a file of settings.
const maxConfig = 1 << 20

// enter judges a folder that is about to become a git directory by what is in it: it may
// contain nothing that the command could not put into a git directory. Harmless settings are
// written anew, because a process may have them open. dir and name say where the folder is; f is
// that folder; p is for messages and says where it will be guarded.
func enter(f folder, p Place, dir int, name string) Verdict {
	inside := Place{Dir: dir, Path: p.Path}
	if name != "" {
		inside.Path = p.String()
	}
	verdict := allowed
	for _, entry := range []struct {
		name  string
		check func(folder, Place) Verdict
	}{
		{"hooks", checkHooks}, {"info", checkInfo}, {"config", enterSettings}, {"config.worktree", enterSettings}, {"commondir", enterCommonDir},
	} {
		inside.Name = entry.name
		v := entry.check(f, inside)
		if v.Action == Refuse {
			return v
		}
		for _, file := range v.Fresh {
			file.Dir, file.Folder = dir, name
			verdict.Fresh = append(verdict.Fresh, file)
		}
	}
	return verdict
}

func enterSettings(f folder, p Place) Verdict {
	if f.kind(p.Name) == missing {
		return allowed
	}
	file, err := checkedConfig(f, p.Name, p)
	if err != nil {
		return refuse(RuleConfig, p, err.Error(), fixOutside)
	}
	file.Name = p.Name
	return Verdict{Action: Allow, Fresh: []File{file}}
}

// enterCommonDir accepts what git itself writes, where git writes it: in X/worktrees/NAME of a
// git directory X. In another folder the same text would name another directory.
func enterCommonDir(f folder, p Place) Verdict {
	if f.kind(p.Name) == missing {
		return allowed
	}
	file, err := f.read(p.Name)
	if err != nil || string(file.Content) != worktreeCommonDir || f.sub != "" || p.inWorktreeEntry() != yes {
		return refuse(RuleCommonDir, p, "it tells git where to find settings and hooks", fixOutside)
	}
	file.Name = p.Name
	return Verdict{Action: Allow, Fresh: []File{file}}
}

// checkedConfig reads settings that a command could have made from nothing, or
// from those of the main worktree.
func checkedConfig(f folder, name string, p Place) (File, error) {
	file, err := f.read(name)
	if err != nil {
		return File{}, err
	}
	var old []entry
	if name == "config.worktree" && f.sub == "" && p.inWorktreeEntry() == yes {
		if old, err = readConfig(folder{fd: p.Dir, sub: up(2)}, name); err != nil {
			return File{}, err
		}
	}
	file.Content, err = checkAdded(old, file.Content, p.Path)
	return file, err
}

// checkedChange reads the new settings and compares them with those in place.
func (c Change) checkedChange() (File, error) {
	file, err := c.From.at().read(c.From.Name)
	if err != nil {
		return File{}, err
	}
	if c.At.at().kind(c.At.Name) == link {
		return File{}, errors.New("it is a symbolic link, which stays")
	}
	old, err := readConfig(c.At.at(), c.At.Name)
	if err != nil {
		return File{}, fmt.Errorf("the settings in place cannot be compared: %w", err)
	}
	file.Content, err = checkAdded(old, file.Content, c.At.Path)
	return file, err
}

// readConfig parses a file of settings; one that is missing has none.
func readConfig(f folder, name string) ([]entry, error) {
	if f.kind(name) == missing {
		return nil, nil
	}
	file, err := f.read(name)
	if err != nil {
		return nil, err
	}
	return parseConfig(file.Content)
}

// checkAdded fails for the first setting of content that is not in old and that is not known
// to be harmless, in the git directory dir. It returns the content without the settings that git
// does not need. Settings may be removed: what they overrode are the user's own.
func checkAdded(old []entry, content []byte, dir string) ([]byte, error) {
	fresh, err := parseConfig(content)
	if err != nil {
		return nil, err
	}
	left := make(map[entry]int, len(old))
	for _, e := range old {
		left[e.plain()]++
	}
	kept, from := []byte(nil), 0
	for _, e := range fresh {
		switch {
		case left[e.plain()] > 0:
			left[e.plain()]--
		case e.needless(dir):
			kept = append(kept, content[from:e.start]...)
			from = e.end
		default:
			if err := e.harmless(); err != nil {
				return nil, fmt.Errorf("%q: %w", e.name, err)
			}
		}
	}
	return append(kept, content[from:]...), nil
}
