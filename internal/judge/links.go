package judge

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A change is judged by the real path of the file. Programs outside find the file by any
// name, also by one that goes through symbolic links. So this has to hold for every link
// that a command makes or moves: whatever a rule forbids below the link's name, it
// forbids at the place that the link leads to. Then no file can be written by a name that
// is allowed and found by a name that is not. It must stay true whatever is made, moved
// or replaced later, because nothing remembers the link: a link is judged by its text
// and its own place, and not by what it leads to now. Links that were there before, and
// that the user made, are not judged.
//
// Two kinds of links break this rule. One has a name that is a part of what a pattern
// matches: everything that it leads to gets the rest of the pattern. The other lies
// outside of the directories in which patterns do not hold (node_modules, target) and leads
// into one.

// Leads reports whether a symbolic link with that text must not be at a path, and the
// rule because of which.
func (j *Files) Leads(inside, text string) (plan.Decision, bool) {
	target := text
	if !strings.HasPrefix(target, "/") {
		target = path.Join(path.Dir(inside), target)
	}
	for _, e := range j.lines {
		if e.Access != policy.Write && e.Path != inside && pathx.Within(inside, e.Path) {
			return ByLine(e), true
		}
	}
	line := j.line(inside, trusted)
	for i := range j.parted {
		if p := &j.parted[i]; p.leads(inside, path.Clean(target)) && !p.excepted(line.Path, inside+"/x") {
			return refusedLink(inside, "by the link, files would get names that "+p.rule()+" "+p.Pattern+" ("+p.Origin.String()+") is about; make a folder of that name"), true
		}
	}
	if line.Content != plan.Host { // nobody outside sees it
		return plan.Decision{}, false
	}
	for i := range j.excepting {
		p := &j.excepting[i]
		if folder := j.intoExempt(p, line, inside, text); folder != "" {
			return refusedLink(inside, "the link leads into "+folder+", where names are not protected; use a copy, or a link the other way round"), true
		}
	}
	return plan.Decision{}, false
}

// refusedLink is the decision about a link that no rule for its path allows: it is about
// where the link leads.
func refusedLink(inside, reason string) plan.Decision {
	return plan.Decision{Access: policy.Read, Rule: ruleProtect, At: inside, Reason: reason, Origin: policy.Origin{Layer: policy.LayerBuiltin, Source: "built-in: links"}}
}

// leads reports whether a part of the pattern matches the path, with more of the
// pattern to come. The part has to end in a name, or be about a folder which the
// target is not in.
func (p *pattern) leads(inside, target string) bool {
	full := p.Pattern
	if !strings.HasPrefix(full, "/") {
		full = "/**/" + full
	}
	fixed := fixedPart(p.Glob)
	for i := 1; i < len(full); i++ {
		if full[i] != '/' || !pathx.MatchGlobExactly(full[:i], inside) {
			continue
		}
		if !strings.HasSuffix(full[:i], "/**") || fixed != "/" && !pathx.Within(fixed, target) {
			return true
		}
	}
	return false
}

// intoExempt is the directory in which a pattern does not hold that a link outside of it
// leads into, or leads into after a directory around the link is moved or one on its
// way is replaced. It is empty if there is none.
func (j *Files) intoExempt(p *pattern, line *plan.Path, inside, text string) string {
	if p.excepted(line.Path, inside+"/x") {
		return ""
	}
	l := readLink(text)
	for _, folder := range p.ExceptUnder {
		leads := false
		switch whole := strings.HasPrefix(folder, "/"); {
		case whole && !j.writableAt(folder):
		case whole && l.anywhere:
			leads = slices.Contains(l.names, path.Base(folder))
		case whole && l.absolute:
			leads = l.at != "/" && (pathx.Within(l.at, folder) || pathx.Within(folder, l.at))
		case whole:
			leads = l.reaches(folder, line.Path)
		case l.absolute && !l.anywhere:
			leads = j.writableAt(l.at) && slices.ContainsFunc(pathx.Between(j.line(l.at, trusted).Path, l.at+"/x"), func(dir string) bool { return path.Base(dir) == folder })
		default:
			leads = slices.Contains(l.names, folder)
		}
		if leads {
			return folder
		}
	}
	return ""
}

// writableAt reports whether the plan lets a path of the host be changed.
func (j *Files) writableAt(inside string) bool {
	line := j.line(path.Clean(inside), trusted)
	return line.Access == policy.Write && line.Content == plan.Host
}

// linkText is the text of a symbolic link, taken apart.
type linkText struct {
	absolute bool
	at       string // of an absolute one, cleaned
	ups      int    // of a relative one, how many ".." it begins with
	names    []string
	// anywhere: it leads where its text does not say, because it goes down and up again,
	// by a name that may become a link, or through /proc, where each process finds
	// other links.
	anywhere bool
}

func readLink(text string) linkText {
	l := linkText{absolute: strings.HasPrefix(text, "/"), at: path.Clean(text)}
	l.anywhere = l.absolute && pathx.Within("/proc", l.at)
	for name := range strings.SplitSeq(text, "/") {
		switch {
		case name == "" || name == ".":
		case name != "..":
			l.names = append(l.names, name)
		case len(l.names) > 0:
			l.anywhere = true
		default:
			l.ups++
		}
	}
	return l
}

// reaches reports whether a relative link leads into a folder, or to one around it, from
// some directory of a root: the directory that has the link may be moved there.
func (l *linkText) reaches(folder, root string) bool {
	names := "/" + strings.Join(l.names, "/")
	for from := path.Dir(folder); len(l.names) > 0; from = path.Dir(from) {
		rest := "/" + pathx.Rel(from, folder)
		starts := pathx.Within(root, from) || pathx.Within(from, root) && pathx.Depth(root)-pathx.Depth(from) <= l.ups
		if starts && (pathx.Within(rest, names) || pathx.Within(names, rest)) {
			return true
		}
		if from == "/" {
			break
		}
	}
	return false
}
