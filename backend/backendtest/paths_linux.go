package backendtest

import (
	"io"
	"os"
	"path/filepath"

	"github.com/cloche-dev/cloche/policy"
)

var pathCases = []testCase{
	{"paths/write-outside", []string{"paths.write"}, writeOutside},
	{"paths/change-metadata-outside", []string{"paths.write", "paths.metadata"}, changeMetadataOutside},
	{"paths/write-through-proc", []string{"paths.write"}, writeThroughProc},
	{"paths/write-through-links", []string{"paths.write"}, writeThroughLinks},
	{"paths/workspace-is-writable", []string{"paths.write"}, workspaceIsWritable},
	{"paths/read-only-in-writable", []string{"paths.read"}, readOnlyInWritable},
	{"paths/writable-in-read-only", []string{"paths.write"}, writableInReadOnly},
	{"paths/granted-by-link", []string{"paths.write"}, grantedByLink},
	{"paths/planted-link", []string{"paths.write"}, plantedLink},
	{"paths/reads-system", []string{"paths.read"}, readsSystem},
	{"paths/own-program", []string{"paths.read"}, ownProgram},
	{"paths/tmp-is-private", []string{"tmp", "paths.write"}, tmpIsPrivate},
	{"paths/tmp-shared", []string{"tmp"}, tmpShared},
}

// F3: nothing outside the writable folders can be changed: by its own path, by a
// relative one, or by creating a new name.
func writeOutside(c *check) {
	victim := c.file("before", c.outside, "victim")
	top := "/" + c.token
	c.cleanup(func() { os.Remove(top); os.Remove("/etc" + top); os.Remove("/usr" + top) })
	c.refused(c.box().do(
		write(victim, "after"),
		write(c.ws+"/../outside/victim", "after"),
		write("../outside/victim", "after"),
		create(c.outside+"/new"), on("mkdir", c.outside+"/dir"), fromTo("symlink", "x", c.outside+"/link"),
		on("unlink", victim), fromTo("rename", victim, c.outside+"/moved"), fromTo("rename", victim, c.ws+"/stolen"),
		op{Do: "truncate", Path: text(victim)},
		create(top), create("/etc"+top), create("/usr"+top),
	)...)
	c.holds(victim, "before")
	c.absent(filepath.Join(c.outside, "new"))
	c.absent(top)
}

// F3: the mode and the times of files outside the writable folders cannot be changed.
func changeMetadataOutside(c *check) {
	victim := c.file("before", c.outside, "victim")
	c.refused(c.box().do(chmod(victim, 0o777), on("utime", victim), chmod(c.outside, 0o777))...)
	if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o644 {
		c.Errorf("the mode changed: %v (%v)", info, err)
	}
}

// F3: paths through /proc lead to the same restricted view.
func writeThroughProc(c *check) {
	victim := c.file("before", c.outside, "victim")
	var ops []op
	for _, root := range []string{"/proc/self/root", "/proc/1/root", "/proc/thread-self/root", "/proc/self/cwd/../../../../../../../../..", "/proc/1/cwd/../../../../../../../.."} {
		ops = append(ops, write(root+victim, "after"))
	}
	// Opening the kernel's own files is enough for the test. Nothing is written to them.
	ops = append(ops, write("/proc/self/cwd/../outside/victim", "after"), write("/proc/sys/kernel/core_pattern", ""),
		write("/proc/sys/vm/drop_caches", ""), write("/proc/sysrq-trigger", ""), write("/sys/kernel/uevent_helper", ""))
	c.refused(c.box().do(ops...)...)
	c.holds(victim, "before")
}

// F3: links in the workspace, made before the command or by it, give no access to other
// files.
func writeThroughLinks(c *check) {
	victim := c.file("before", c.outside, "victim")
	c.must(os.Symlink(victim, filepath.Join(c.ws, "planted")))
	c.must(os.Symlink("../outside", filepath.Join(c.ws, "folder")))
	answers := c.box().do(
		write(c.ws+"/planted", "after"), write(c.ws+"/folder/victim", "after"), create(c.ws+"/folder/new"),
		fromTo("symlink", victim, c.ws+"/made"), write(c.ws+"/made", "after"),
		fromTo("link", victim, c.ws+"/hard"),
	)
	c.allowed(answers[3])
	c.refused(append(answers[:3:3], answers[4:]...)...)
	c.holds(victim, "before")
}

// F3: a granted path is writable. Otherwise the other cases would prove nothing.
func workspaceIsWritable(c *check) {
	answers := c.box().do(
		write(c.ws+"/new", "text"), on("mkdir", c.ws+"/dir"), write(c.ws+"/dir/a", "a"), fromTo("rename", c.ws+"/dir/a", c.ws+"/dir/b"),
		fromTo("link", c.ws+"/new", c.ws+"/hard"), chmod(c.ws+"/new", 0o755), read(c.ws+"/hard"),
		write(c.ws+"/gone", ""), on("unlink", c.ws+"/gone"), write("/dev/null", "x"),
	)
	c.allowed(answers...)
	c.holds(filepath.Join(c.ws, "new"), "text")
	c.holds(filepath.Join(c.ws, "dir/b"), "a")
	if info, err := os.Stat(filepath.Join(c.ws, "new")); err != nil || int(info.Mode().Perm()) != 0o755 || !ownedByCaller(info) {
		c.Errorf("the new file has the wrong mode or owner: %v (%v)", info, err)
	}
}

// F5: the rule for the deeper path wins.
func readOnlyInWritable(c *check) {
	kept := c.file("before", c.ws, "vendor/lib")
	answers := c.box(policy.AllowRead(c.ws+"/vendor")).do(read(kept), write(kept, "after"), create(c.ws+"/vendor/new"), on("unlink", kept), create(c.ws+"/other"))
	c.reads(answers[0], "before")
	c.refused(answers[1:4]...)
	c.allowed(answers[4])
	c.holds(kept, "before")
}

// A3: a folder can be writable inside a read-only one, which is inside a hidden one.
func writableInReadOnly(c *check) {
	deep := c.dir(c.outside, "hidden/shown/work")
	c.file("secret", c.outside, "hidden/key")
	b := c.box(policy.HidePaths(c.outside+"/hidden"), policy.AllowRead(c.outside+"/hidden/shown"), policy.AllowWrite(deep))
	answers := b.do(create(deep+"/new"), create(c.outside+"/hidden/shown/new"), create(c.outside+"/hidden/new"), read(c.outside+"/hidden/key"))
	c.allowed(answers[0])
	c.refused(answers[1:]...)
	if _, err := os.Stat(filepath.Join(deep, "new")); err != nil {
		c.Errorf("the file did not arrive: %v", err)
	}
}

// F5: a rule for a link applies to its target, and both names work.
func grantedByLink(c *check) {
	target := c.dir(c.outside, "target")
	link := filepath.Join(c.outside, "link")
	c.must(os.Symlink(target, link))
	c.allowed(c.box(policy.AllowWrite(link)).do(create(link+"/a"), create(target+"/b"))...)
	c.allowed(c.preset("strict", policy.AllowWrite(link)).do(create(link+"/c"), create(target+"/d"))...)
}

// F5 L6: a command cannot redirect a grant in the workspace by leaving a link in its
// place. The next command is refused, or is confined as before.
func plantedLink(c *check) {
	victim := c.file("before", c.outside, "victim")
	out := c.dir(c.ws, "out")
	b := c.box(policy.AllowWrite(out))
	c.allowed(b.do(fromTo("rename", out, c.ws+"/old"), fromTo("symlink", c.outside, out))...)
	if s := b.tryOpen(); s == nil {
		return
	}
	c.refused(b.do(write(victim, "after"), write(out+"/victim", "after"))...)
	c.holds(victim, "before")
}

// F14 A1: with "reads: system" the command sees the system and none of the user's
// files.
func readsSystem(c *check) {
	private := c.file("private", c.home, "letter")
	other := c.file("other", c.outside, "file")
	answers := c.preset("strict").do(read("/etc/passwd"), read(private), list(c.home), read(other), list(c.outside), create(c.home+"/new"))
	c.allowed(answers[0])
	c.refused(answers[1:]...)
	c.refused(c.box(policy.Set("home.visible", "false")).do(read(private), create(c.home+"/new"))...)
}

// C4: the command's own program can be run from any folder, and nothing beside it is
// shown.
func ownProgram(c *check) {
	self, err := os.Executable()
	c.must(err)
	beside := c.file("beside", c.outside, "bin/beside")
	tool := filepath.Join(c.outside, "bin/tool")
	c.must(copyFile(self, tool))
	b := c.preset("strict")
	ops := []op{read(beside), read(tool), write(tool, "x")}
	_, args := c.probeArgs(ops...)
	answers := c.answers(b.run(tool, args...), ops)
	c.refused(answers[0], answers[2])
	c.allowed(answers[1])
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// publicFolders are the folders that all users of a machine share.
var publicFolders = []string{"/tmp", "/var/tmp", "/dev/shm"}

// F3: the folders that all users share are private: neither side sees the other's
// files.
func tmpIsPrivate(c *check) {
	var ops []op
	for _, d := range publicFolders {
		theirs, ours := filepath.Join(d, c.token+"-host"), filepath.Join(d, c.token+"-inside")
		if err := os.WriteFile(theirs, []byte("host"), 0o644); err != nil {
			c.Logf("%s is left out: %v", d, err)
			continue
		}
		c.cleanup(func() { os.Remove(theirs); os.Remove(ours) })
		ops = append(ops, read(theirs), create(ours))
	}
	for i, a := range c.box().do(ops...) {
		if i%2 == 0 {
			c.refused(a)
			continue
		}
		c.allowed(a)
		c.absent(string(a.op.Path))
	}
}

// The host's /tmp is shared if the policy says so.
func tmpShared(c *check) {
	theirs, ours := "/tmp/"+c.token+"-host", "/tmp/"+c.token+"-inside"
	c.must(os.WriteFile(theirs, []byte("host"), 0o644))
	c.cleanup(func() { os.Remove(theirs); os.Remove(ours) })
	answers := c.box(policy.Set("tmp", "shared")).do(read(theirs), write(ours, "inside"))
	c.reads(answers[0], "host")
	c.allowed(answers[1])
	c.holds(ours, "inside")
}
