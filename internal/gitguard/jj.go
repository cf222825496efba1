package gitguard

import "path"

// RuleJJ is the rule about files that lead jj to another repository.
const RuleJJ = "jj.repo"

// jj judges a change of `.jj/repo`. Where that is a folder, it is the repository of
// jj, and the preset of sinks protects the settings in it by their names. Where it is
// a file or a link, it names a folder anywhere, and jj obeys the settings there: so a
// command cannot make or change one.
func (c Change) jj() Verdict {
	if c.Exchange {
		there, back := c, c
		there.Exchange, back.Exchange = false, false
		back.At, back.From = c.From, c.At
		if v := there.jj(); v.Action == Refuse {
			return v
		}
		return back.jj()
	}
	switch {
	case c.At.Name == "repo" && path.Base(c.At.Path) == ".jj":
		if c.Op == Mkdir || c.Op == Remove || c.Op == Rename && isFolder(c.From, "") {
			return allowed
		}
	case c.At.Name == ".jj" && c.Op == Rename:
		if isFolder(c.From, "repo") {
			return allowed
		}
	default:
		return allowed
	}
	return refuse(RuleJJ, c.At, "it would lead jj to other settings, which name programs", "run jj workspace add outside")
}

// isFolder reports whether a place, or a name in it, is a folder or missing.
func isFolder(p Place, name string) bool {
	f := folder{fd: p.Dir}
	if name == "" {
		name = p.Name
	} else {
		f.sub = p.Name
	}
	k := f.kind(name)
	return k == directory || k == missing
}
