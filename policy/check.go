package policy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// check checks what cannot be seen from single values: paths, names, and entries that
// contradict each other. It also joins relative paths to the document's folder and replaces
// shorthands. It does this once.
func (d *document) check() error { return joinErrors(d.faults()) }

func (d *document) faults() []*Error {
	if d.checked {
		return nil
	}
	c := &checker{doc: d}
	c.all()
	d.checked = len(c.errs) == 0
	return c.errs
}

// A checker checks a document. All checks are here: [Policy.Validate] turns a policy into a
// document and uses them too.
type checker struct {
	doc *document
	// merged: the document is a policy, whose values come from several layers.
	merged bool
	errs   []*Error
}

func (c *checker) all() {
	c.head()
	c.paths()
	c.exempt()
	c.places()
	c.network()
	c.secrets()
	c.bus()
	c.env()
	c.limits()
	c.ask()
	c.backend()
	c.tests()
}

func (c *checker) fail(field string, err error) {
	if err != nil && len(c.errs) < maxErrors {
		c.errs = append(c.errs, place(err, c.doc.origin(field), field))
	}
}

func (c *checker) failf(field, fix, format string, args ...any) {
	c.fail(field, faultf(fix, format, args...))
}

// head checks the version, the switches enabled and sandbox, and the presets.
func (c *checker) head() {
	d := c.doc
	if d.Version != nil && *d.Version != version {
		c.failf("version", "write version: 1", "version %d is not known", *d.Version)
	}
	if d.Enabled != nil && d.Sandbox != nil {
		c.failf("sandbox", "keep one of them", "says the same as enabled%s", c.where("enabled"))
	} else if d.Sandbox != nil {
		d.Enabled, d.Sandbox = d.Sandbox, nil
		if o, ok := d.origins["sandbox"]; ok {
			d.origins["enabled"] = o
		}
	}
	if d.Review != nil {
		c.fail("review", checkReview(string(*d.Review)))
	}
	for i, name := range d.Presets {
		c.fail(indexed("presets", i), knownPreset(name))
	}
}

// paths checks the path lists, and reports a path that is in two of them.
func (c *checker) paths() {
	seen := map[placed]listed{}
	for _, l := range c.doc.Paths.lists() {
		use := pathUse{globs: true, lasting: l.name == "hide" || l.name == "protect"}
		for i := range *l.rules {
			r, field := &(*l.rules)[i], indexed(l.field, i)
			if l.found {
				c.fail(field, checkFound(r.Path))
				continue
			}
			if err := checkMark(r.Path); err != nil {
				c.fail(field, err)
			} else if c.settle(field, &r.Path, use) {
				c.contradiction(seen, r.Path, listed{l.name, field})
			}
			c.fail(field, checkCreate(*r, l.name))
		}
	}
}

// ask checks the hook and the timeout.
func (c *checker) ask() {
	s := c.doc.Ask
	if s == nil {
		return
	}
	if s.Hook != nil && !strings.HasPrefix(*s.Hook, "/") && !strings.HasPrefix(*s.Hook, "~/") {
		c.fail("ask.hook", faultf("write it from / or ~/ on", "%q is a relative path", *s.Hook))
	}
	if s.Timeout != nil && (*s.Timeout <= 0 || *s.Timeout == Unlimited) {
		c.fail("ask.timeout", faultf("write a time such as 30s or 10m", "%s is not a time to wait", *s.Timeout))
	}
}

// checkMark rejects a path that still begins with "?". In the short form, "?" marks an
// optional path; in the long form, it would be a wildcard. A rule for the pattern "?secrets"
// would hide names like "xsecrets", but not "secrets", which was probably meant.
func checkMark(p string) error {
	if rest, ok := strings.CutPrefix(p, "?"); ok {
		return faultf(fmt.Sprintf("write {path: %q, optional: true}, or ./%s for a pattern", rest, p), "%q begins with ?, which is no part of a path", p)
	}
	return nil
}

// checkCreate requires that a path to create is writable and not a pattern.
func checkCreate(e PathRule, list string) error {
	switch {
	case !e.Create:
		return nil
	case list != "write":
		return faultf("remove create, or list the path under paths.write", "%q is to be made, and only what may be written is", e.Path)
	case pathx.IsGlob(e.Path):
		return faultf("write the path out, or remove create", "%q is to be made, and is a glob", e.Path)
	}
	return nil
}

// checkFound requires a file name at any depth, "**/NAME", because the search compares only
// names.
func checkFound(p string) error {
	name, ok := strings.CutPrefix(p, "**/")
	_, err := path.Match(name, "")
	switch {
	case !ok || name == "" || name == "." || name == ".." || strings.Contains(name, "/") || strings.Contains(name, "**"):
		return faultf("write **/NAME, or use paths.hide", "%q is not the name of a file at any depth", p)
	case strings.ContainsAny(name, "\x00$") || pathx.HasChoice(name) || err != nil:
		return faultf("write a plain name with * and ?", "%q is not a pattern of a name", p)
	}
	return nil
}

// exempt checks the folders in which patterns do not protect.
func (c *checker) exempt() {
	if c.doc.Paths == nil {
		return
	}
	for i := range c.doc.Paths.ProtectUnlessUnder {
		field := indexed("paths.protect_unless_under", i)
		e := &c.doc.Paths.ProtectUnlessUnder[i]
		if e.IsName() {
			c.fail(field, checkFolderName(e.Folder))
		} else {
			c.settle(field, &e.Folder, pathUse{})
		}
	}
}

// IsName reports whether Folder is a name, and not a path.
func (e Exemption) IsName() bool {
	s := e.Folder
	return s != "" && s != "~" && s != "cwd" && !strings.ContainsAny(s, "/$") && !strings.HasPrefix(s, "urn:")
}

// checkFolderName reports a name that no folder can have, or that is a pattern.
func checkFolderName(s string) error {
	switch {
	case s == "." || s == "..":
		return faultf("write ./ in front of a folder's name", "%q is not the name of a folder", s)
	case pathx.IsGlob(s):
		return faultf("write the name out", "%q holds *, ?, [ or {a,b}, and globs are not allowed here", s)
	case strings.IndexByte(s, 0) >= 0:
		return faultf("remove it", "holds a NUL byte")
	}
	return nil
}

// A placed is a path as written by one source. Layer and source are only set for a merged
// policy: rules of different sources do not contradict each other.
type placed struct {
	path   string
	layer  Layer
	source string
}

// listed is the list and field where a path was first seen.
type listed struct{ list, field string }

// contradiction reports a path to which an earlier list gives another access. Protecting a
// path that is only readable or hidden changes nothing, so it is no contradiction.
func (c *checker) contradiction(seen map[placed]listed, path string, at listed) {
	key := placed{path: samePath(path)}
	if c.merged {
		o := c.doc.origin(at.field)
		key.layer, key.source = o.Layer, o.Source
	}
	first, ok := seen[key]
	if !ok {
		seen[key] = at
		return
	}
	if first.list == at.list || at.list == "protect" && first.list != "write" {
		return
	}
	c.failf(at.field, "keep one of them", "%q is already in paths.%s%s", key.path, first.list, c.where(first.field))
}

// where returns the position of a field in a form to append to its name.
func (c *checker) where(field string) string {
	switch o := c.doc.origin(field); {
	case c.merged && o.Source != c.doc.Name:
		return " (" + o.String() + ")"
	case !c.merged && o.Line > 0:
		return " on line " + strconv.Itoa(o.Line)
	}
	return ""
}

// settle checks one path and joins it to the document's folder.
func (c *checker) settle(field string, p *string, use pathUse) bool {
	settled, err := use.settle(c.doc.Base, *p)
	c.fail(field, err)
	if settled != *p {
		*p = settled
	}
	return err == nil
}

// places checks the paths that are not in the path lists.
func (c *checker) places() {
	d := c.doc
	for i := range d.Binds {
		field := indexed("binds", i)
		c.settle(field, &d.Binds[i].Source, pathUse{})
		if d.Binds[i].Target != "" {
			c.settle(field, &d.Binds[i].Target, pathUse{inside: true})
		}
	}
	for i := range d.Persist {
		c.settle(indexed("persist", i), &d.Persist[i], pathUse{})
	}
	for i := range d.Sockets {
		c.socket(indexed("sockets", i), &d.Sockets[i].Path)
	}
	if d.Home != nil && d.Home.Value != nil {
		c.settle("home.value", d.Home.Value, pathUse{inside: true})
	}
	if d.Remap != nil {
		c.fail("remap", checkRemap(*d.Remap))
	}
	if d.Hosts != nil && strings.IndexByte(*d.Hosts, 0) >= 0 {
		c.failf("hosts", "remove it", "holds a NUL byte")
	}
}

// checkRemap requires a plain absolute path. It is a path inside, where the host's variables
// mean nothing.
func checkRemap(p string) error {
	switch {
	case p == "":
		return faultf("name a path, or remove the entry", "the path is empty")
	case strings.IndexByte(p, 0) >= 0:
		return faultf("remove it", "holds a NUL byte")
	case !strings.HasPrefix(p, "/") || strings.Contains(p, "$") || pathx.IsGlob(p):
		return faultf("write a path such as /workspace", "%q is not a plain absolute path", p)
	case samePath(p) == "/":
		return faultf("write a path such as /workspace", "the workspace cannot take the place of the root folder")
	}
	return nil
}

func (c *checker) env() {
	if c.doc.Env == nil {
		return
	}
	for i, name := range c.doc.Env.Pass {
		c.fail(indexed("env.pass", i), checkPass(name))
	}
	for _, name := range slices.Sorted(maps.Keys(c.doc.Env.Set)) {
		c.fail(joinField("env.set", name), checkVariable(name, c.doc.Env.Set[name]))
	}
}

func checkPass(name string) error {
	if name == "*" {
		return faultf("write env policy inherit", "%q is every variable", name)
	}
	stem := strings.TrimSuffix(name, "*")
	if strings.Contains(stem, "*") {
		return faultf("a name may only end in *", "%q has a wildcard inside", name)
	}
	return checkVariable(stem, "")
}

func checkVariable(name, value string) error {
	switch {
	case name == "":
		return faultf("name a variable, or remove the entry", "the variable's name is empty")
	case strings.ContainsAny(name, "=\x00"):
		return faultf("write NAME alone, and its value under env.set", "%q is not a variable's name", name)
	case strings.IndexByte(value, 0) >= 0:
		return faultf("remove it", "the value holds a NUL byte")
	}
	return nil
}

func (c *checker) limits() {
	values := c.doc.Limits.set()
	for _, name := range limitNames {
		if value := values[name]; value != nil && *value < Unlimited {
			c.failf("limits."+name, "write unlimited to take the limit away", "%d is below zero", *value)
		}
	}
}

func (c *checker) backend() {
	d := c.doc
	if b := d.Backend; b != nil {
		if b.Fallback != nil && d.Fallback != nil {
			c.failf("fallback", "keep one of them", "says the same as backend.fallback%s", c.where("backend.fallback"))
		}
		if b.Name != nil && *b.Name == "" {
			c.failf("backend.name", "write auto, required or a backend's name", "the name is empty")
		}
	}
	if d.Backends == nil || d.Backends.Bwrap == nil {
		return
	}
	if p := d.Backends.Bwrap.Path; p != nil {
		// It is not joined to the document's folder: a program next to a project's file was
		// chosen by the project's author.
		c.settle("backends.bwrap.path", p, pathUse{inside: true})
	}
}

func (c *checker) tests() {
	for i := range c.doc.Tests {
		t, field := &c.doc.Tests[i], indexed("tests", i)
		set := t.set()
		if len(set) != 1 {
			c.failf(field, "write one of read, write, exec, connect", "a test checks one action, and this has %d", len(set))
			continue
		}
		if t.Want != "allow" && t.Want != "deny" {
			c.failf(joinField(field, "want"), "write want: allow or want: deny", "%q is not one of allow, deny", t.Want)
		}
		c.target(joinField(field, set[0].name), set[0])
	}
}

// target checks the target of an action.
func (c *checker) target(field string, a testAction) {
	name, abstract := strings.CutPrefix(*a.target, "@")
	switch {
	case a.name == "exec" && !strings.Contains(*a.target, "/"):
		// The name is looked up in PATH.
	case a.name == "connect" && abstract:
		c.fail(field, checkAbstract(name))
	case a.name == "connect" && !strings.ContainsAny((*a.target)[:1], "/~$"): // no path of a unix socket
		_, err := ParseDestination(*a.target)
		c.fail(field, err)
	default:
		c.settle(field, a.target, pathUse{})
	}
}

// knownPreset returns an error if there is no preset of that name.
func knownPreset(name string) error {
	known := Presets()
	if slices.Contains(known, name) {
		return nil
	}
	if near := nearest(name, known); near != "" {
		return faultf(fmt.Sprintf("did you mean %q?", near), "unknown preset %q", name)
	}
	return faultf("known: "+strings.Join(known, ", "), "unknown preset %q", name)
}
