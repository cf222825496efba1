package backendtest

import (
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/policy"
)

var protectCases = []testCase{
	{"protect/file", []string{"paths.protect"}, protectedFile},
	{"protect/folder", []string{"paths.protect"}, protectedFolder},
	{"protect/link", []string{"paths.protect"}, protectedLink},
	{"protect/missing", []string{"paths.protect"}, protectedMissing},
	{"protect/parent-renamed", []string{"paths.protect"}, protectedParent},
}

// attack returns the ways to change a file.
func attack(p, spare string) []op {
	return []op{
		write(p, "after"), {Do: "truncate", Path: text(p)}, chmod(p, 0o777), on("utime", p),
		create(spare), fromTo("rename", spare, p), exchange(spare, p),
		on("unlink", p), fromTo("rename", p, spare+"2"), fromTo("link", p, spare+"3"),
		umount(p), remount(p), write(p, "after"),
	}
}

// F3 L6: a protected file in a writable folder does not change.
func protectedFile(c *check) {
	kept := c.file("before", c.ws, "conf/kept")
	answers := c.box(policy.ProtectPaths(kept)).do(append(attack(kept, c.ws+"/spare"), read(kept), create(c.ws+"/conf/other"))...)
	last := len(answers) - 2
	c.refused(append(answers[:4:4], answers[5:last]...)...)
	c.reads(answers[last], "before")
	c.allowed(answers[4], answers[last+1])
	c.holds(kept, "before")
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o644 {
		c.Errorf("the mode changed: %v (%v)", info, err)
	}
}

// F3 N8: in a protected folder no file can be created or removed.
func protectedFolder(c *check) {
	kept := c.file("before", c.ws, ".git/hooks/pre-commit")
	hooks := filepath.Dir(kept)
	c.dir(c.ws, "fake")
	c.refused(c.box(policy.ProtectPaths(hooks)).do(
		create(hooks+"/post-checkout"), write(kept, "after"), on("unlink", kept), fromTo("rename", hooks, c.ws+"/moved"),
		fromTo("rename", c.ws+"/fake", hooks), exchange(c.ws+"/fake", hooks), fromTo("rename", c.ws+"/.git", c.ws+"/git"),
		exchange(c.ws+"/fake", c.ws+"/.git"),
	)...)
	c.holds(kept, "before")
	c.absent(hooks + "/post-checkout")
}

// F3 N8: a protected link keeps its target, and the target does not change.
func protectedLink(c *check) {
	kept := c.file("before", c.ws, "real/pre-commit")
	link := filepath.Join(c.ws, "hooks")
	c.must(os.Symlink("real", link))
	c.dir(c.ws, "fake")
	c.refused(c.box(policy.ProtectPaths(link)).do(
		create(link+"/new"), write(kept, "after"), fromTo("rename", c.ws+"/real", c.ws+"/moved"),
		on("unlink", link), fromTo("rename", link, c.ws+"/moved"), exchange(c.ws+"/fake", link),
	)...)
	c.holds(kept, "before")
	if target, err := os.Readlink(link); err != nil || target != "real" {
		c.Errorf("the link is %q (%v)", target, err)
	}
}

// F3 L6: a protected path that does not exist cannot be created, and nothing is created
// on the host in its place.
func protectedMissing(c *check) {
	p := filepath.Join(c.ws, ".envrc")
	spare := c.ws + "/spare"
	answers := c.box(policy.ProtectPaths(p)).do(create(p), on("mkdir", p), create(spare), fromTo("rename", spare, p), fromTo("symlink", "x", p), fromTo("link", spare, p))
	c.refused(append(answers[:2:2], answers[3:]...)...)
	c.absent(p)
}

// F3: moving a folder away does not remove the protection of a path in it.
func protectedParent(c *check) {
	kept := c.file("before", c.ws, "a/b/kept")
	a := filepath.Join(c.ws, "a")
	b := c.box(policy.ProtectPaths(kept))
	b.do(fromTo("rename", a, c.ws+"/z"), write(c.ws+"/z/b/kept", "after"), on("mkdir", a), on("mkdir", a+"/b"), write(kept, "after"))
	c.holds(kept, "before")
}
