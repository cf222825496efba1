package backendtest

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

const secret = "the secret"

var maskCases = []testCase{
	{"masks/hidden-file", []string{"paths.hide"}, hiddenFile},
	{"masks/hidden-folder", []string{"paths.hide"}, hiddenFolder},
	{"masks/hidden-names", []string{"paths.hide", "paths.metadata"}, hiddenNames},
	{"masks/hidden-by-link", []string{"paths.hide"}, hiddenByLink},
	{"masks/shown-in-hidden", []string{"paths.hide", "paths.write"}, shownInHidden},
	{"masks/parent-renamed", []string{"paths.hide"}, parentRenamed},
	{"masks/swapped-between-runs", []string{"paths.hide"}, swappedBetweenRuns},
	{"masks/planted-link", []string{"paths.hide", "paths.protect"}, hiddenThroughLink},
	{"masks/pattern", []string{"paths.hide"}, hiddenPattern},
	{"masks/secrets-of-home", []string{"paths.hide"}, secretsOfHome},
}

// F14: a hidden file cannot be read under any name, and cannot be replaced.
func hiddenFile(c *check) {
	hidden := c.file(secret, c.ws, "env")
	elsewhere := c.file(secret, c.outside, "key")
	answers := c.box(policy.HidePaths(hidden, elsewhere)).do(
		read(hidden), read(elsewhere), read("/proc/self/root"+hidden), read("/proc/self/cwd/env"), read(c.ws+"/../ws/env"),
		write(hidden, "after"), on("unlink", hidden), fromTo("rename", hidden, c.ws+"/env2"), read(c.ws+"/env2"),
		fromTo("link", hidden, c.ws+"/env3"), read(c.ws+"/env3"),
	)
	c.refused(answers...)
	c.holds(hidden, secret)
}

// F14: a hidden folder shows none of its content.
func hiddenFolder(c *check) {
	hidden := filepath.Dir(c.file(secret, c.ws, "secrets/key"))
	answers := c.box(policy.HidePaths(hidden)).do(
		read(hidden+"/key"), create(hidden+"/new"), on("rmdir", hidden), fromTo("rename", hidden, c.ws+"/moved"), umount(hidden),
	)
	c.refused(answers...)
	// For root the folder may look empty instead.
	if a := c.box(policy.HidePaths(hidden)).do(list(hidden))[0]; a.OK() && len(a.List) > 0 {
		c.Errorf("the hidden folder lists %q", a.List)
	}
	c.holds(hidden+"/key", secret)
	c.absent(hidden + "/new")
}

// F14: it cannot be found out whether a name exists in a hidden folder.
func hiddenNames(c *check) {
	key := c.file(secret, c.ws, "secrets/key")
	c.refused(c.box(policy.HidePaths(filepath.Dir(key))).do(on("lstat", key))...)
}

// F5 F14: hiding a link hides its target.
func hiddenByLink(c *check) {
	target := c.file(secret, c.outside, "target")
	link := filepath.Join(c.ws, "link")
	c.must(os.Symlink(target, link))
	c.refused(c.box(policy.HidePaths(link)).do(read(link), read(target))...)
}

// F14: hidden paths in shown folders and shown paths in hidden folders work, three
// levels deep.
func shownInHidden(c *check) {
	dir := filepath.Join(c.ws, "a")
	shown := c.file("shown", dir, "b/shown/file")
	key := c.file(secret, dir, "b/key")
	inner := c.file(secret, dir, "b/shown/inner/key")
	b := c.box(policy.HidePaths(dir+"/b", dir+"/b/shown/inner"), policy.AllowWrite(dir+"/b/shown"))
	answers := b.do(read(shown), create(dir+"/b/shown/new"), read(key), read(inner))
	c.allowed(answers[:2]...)
	c.refused(answers[2:]...)
}

// F14: moving a folder away does not uncover a hidden file in it.
func parentRenamed(c *check) {
	hidden := c.file(secret, c.ws, "a/b/secret")
	dir := c.dir(c.ws, "other")
	b := c.box(policy.HidePaths(hidden))
	a, moved := filepath.Join(c.ws, "a"), filepath.Join(c.ws, "z")
	answers := b.do(
		fromTo("rename", a, moved), fromTo("rename", a+"/b", moved), exchange(a, dir), exchange(a+"/b", dir),
		read(hidden), read(moved+"/b/secret"), read(moved+"/secret"), read(dir+"/b/secret"), read(dir+"/secret"), on("mkdir", a),
	)
	c.refused(answers[4:9]...)
	// The same is true for the next command.
	c.refused(b.do(read(hidden), read(moved+"/b/secret"), read(moved+"/secret"), read(dir+"/b/secret"), read(dir+"/secret"))...)
}

// F14: if a command changes the names around a hidden file, the next command still
// cannot read it.
func swappedBetweenRuns(c *check) {
	hidden := c.file(secret, c.ws, "conf/key")
	b := c.box(policy.HidePaths(hidden))
	b.do(fromTo("symlink", "/etc", c.ws+"/link"), fromTo("rename", c.ws+"/conf", c.ws+"/old"), fromTo("symlink", "/etc", c.ws+"/conf"))
	c.refused(b.do(read(c.ws+"/old/key"), read(hidden))...)
}

// F14: if a command replaces a link that a rule names, the file behind the old link
// stays hidden.
func hiddenThroughLink(c *check) {
	key := c.file(secret, c.ws, "conf/key")
	link := filepath.Join(c.ws, "env")
	c.must(os.Symlink("conf/key", link))
	b := c.box(policy.HidePaths(link))
	c.refused(b.do(on("unlink", link), fromTo("symlink", "/dev/null", link), read(key))...)
	if s := b.tryOpen(); s == nil {
		return
	}
	c.refused(b.do(read(key))...)
}

// N9: a pattern applies to existing files and to files that are created later.
func hiddenPattern(c *check) {
	now := c.file(secret, c.ws, "deep/down/a.pem")
	b := c.box(policy.HidePaths("urn:cloche:workspace/**/*.pem"))
	c.refused(b.do(read(now))...)
	later := c.ws + "/later.pem"
	answers := b.do(write(later, secret), read(later))
	c.refused(answers[1])
}

// F14: the usual secrets are hidden without a rule of the user.
func secretsOfHome(c *check) {
	var ops []op
	for _, name := range []string{".ssh/id_ed25519", ".aws/credentials", ".gnupg/key", ".netrc", ".bash_history", ".config/gh/hosts.yml"} {
		ops = append(ops, read(c.file(secret, c.home, name)))
	}
	plain := c.file("plain", c.home, ".bashrc")
	c.refused(c.box().do(ops...)...)
	c.refused(c.box(policy.AllowWrite(c.home)).do(ops...)...)
	c.reads(c.box().do(read(plain))[0], "plain")
	for _, name := range []string{"/etc/shadow", "/etc/gshadow"} {
		if a := c.box().do(read(name))[0]; a.OK() && strings.Contains(string(a.Data), ":") {
			c.Errorf("%s can be read", name)
		}
	}
}
