package backendtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/policy"
)

var layoutCases = []testCase{
	{"layout/remap", []string{"remap"}, remapped},
	{"layout/remap-keeps-rules", []string{"remap", "paths.hide"}, remapKeepsRules},
	{"layout/binds", []string{"binds"}, bound},
	{"layout/bind-to-new-path", []string{"binds"}, boundToNewPath},
	{"layout/bind-keeps-rules", []string{"binds", "paths.hide", "paths.protect"}, bindKeepsRules},
	{"layout/bind-keeps-own", []string{"binds"}, bindKeepsOwn},
	{"layout/bind-hides-sockets", []string{"binds", "sockets"}, bindHidesSockets},
	{"layout/persist", []string{"persist"}, persisted},
	{"layout/hosts", []string{"hosts"}, hostsFile},
	{"layout/odd-names", []string{"paths.write"}, oddNames},
	{"layout/long-path", []string{"paths.write"}, longPath},
}

var ownCases = []testCase{
	{"own/existing", []string{"paths.hide", "paths.write"}, ownExisting},
	{"own/missing", []string{"paths"}, ownMissing},
	{"own/home-is-workspace", []string{"paths.hide", "paths.write"}, homeIsWorkspace},
	{"own/persisted-around", []string{"persist"}, ownPersistedAround},
}

// L3: the workspace is at another path inside, and paths can be translated in both
// directions.
func remapped(c *check) {
	c.file("text", c.ws, "file")
	b := c.box(policy.Set("remap", "/workspace"))
	answers := b.do(op{Do: "cwd"}, read("/workspace/file"), create("/workspace/new"), read(c.ws+"/file"), list("/workspace2"))
	c.reads(answers[0], "/workspace")
	c.reads(answers[1], "text")
	c.allowed(answers[2])
	c.refused(answers[3:]...)
	if _, err := os.Stat(filepath.Join(c.ws, "new")); err != nil {
		c.Errorf("the file did not arrive: %v", err)
	}
	p, err := b.open(policy.BestEffort).Explain()
	if err != nil {
		c.Errorf("%v", err)
		return
	}
	if h, ok := p.HostPath("/workspace/a/b"); !ok || h != c.ws+"/a/b" {
		c.Errorf("/workspace/a/b is %q (%v) on the host", h, ok)
	}
	if in, ok := p.InsidePath(c.ws + "/a/b"); !ok || in != "/workspace/a/b" {
		c.Errorf("the workspace's a/b is %q (%v) inside", in, ok)
	}
	if in, _ := p.InsidePath(c.ws + "2/a"); strings.HasPrefix(in, "/workspace") {
		c.Errorf("a folder whose name begins like the workspace's is %q inside", in)
	}
}

// L3 F14: rules about the workspace apply at its path inside.
func remapKeepsRules(c *check) {
	hidden := c.file(secret, c.ws, "key")
	kept := c.file("before", c.ws, "kept")
	answers := c.box(policy.Set("remap", "/workspace"), policy.HidePaths(hidden), policy.ProtectPaths(kept)).do(
		read("/workspace/key"), read(hidden), write("/workspace/kept", "after"), write(kept, "after"))
	c.refused(answers...)
	c.holds(kept, "before")
}

// L1: a folder and a file of the host appear at other paths inside.
func bound(c *check) {
	src := filepath.Dir(c.file("text", c.outside, "src/file"))
	at := c.dir(c.outside, "at")
	ro := c.dir(c.outside, "ro")
	answers := c.box(policy.WithBind(src, at, false), policy.WithBind(src, ro, true)).do(
		read(at+"/file"), create(at+"/new"), read(ro+"/file"), create(ro+"/new2"), read(src+"/file"), create(src+"/new3"))
	c.allowed(answers[0], answers[1], answers[2], answers[4])
	c.refused(answers[3], answers[5])
	if _, err := os.Stat(filepath.Join(src, "new")); err != nil {
		c.Errorf("the file did not arrive: %v", err)
	}
	c.absent(filepath.Join(at, "new"))
}

// L1: a bind works at a path that the host does not have, and creates nothing there on
// the host.
func boundToNewPath(c *check) {
	src := filepath.Dir(c.file("text", c.outside, "src/file"))
	at := "/" + c.token + "/data"
	answers := c.box(policy.WithBind(src, at, false)).do(read(at+"/file"), create(at+"/new"), read("/etc/passwd"), read(c.outside+"/src/file"))
	c.allowed(answers...)
	c.absent("/" + c.token)
	answers = c.preset("strict", policy.WithBind(src, at, true)).do(read(at+"/file"), create(at+"/new2"))
	c.allowed(answers[0])
	c.refused(answers[1])
}

// L1 F14: a rule about a path of the host applies at every path inside where it is
// seen.
func bindKeepsRules(c *check) {
	src := c.dir(c.outside, "src")
	key := c.file(secret, src, "deep/key")
	kept := c.file("before", src, "kept")
	vendor := c.file("before", src, "vendor/lib")
	at := c.dir(c.ws, "at")
	b := c.box(policy.WithBind(src, at, false), policy.HidePaths(key), policy.ProtectPaths(kept), policy.AllowRead(src+"/vendor"))
	answers := b.do(create(at+"/new"), read(at+"/deep/key"), write(at+"/kept", "after"), write(at+"/vendor/lib", "after"),
		fromTo("rename", at+"/deep", at+"/moved"), read(at+"/moved/key"))
	c.allowed(answers[0])
	c.refused(answers[1:]...)
	c.holds(kept, "before")
	c.holds(vendor, "before")
}

// L1 L6: a bind shows neither cloche's own files nor the secrets of the home folder.
func bindKeepsOwn(c *check) {
	conf := c.file("version: 1\n", ownDirs(c.home).Config, "policy.yaml")
	c.file(secret, c.home, ".ssh/id")
	at := "/" + c.token
	answers := c.box(policy.WithBind(c.home, at, false)).do(
		read(at+"/.config/cloche/policy.yaml"), write(at+"/.config/cloche/policy.yaml", "after"), create(at+"/.local/state/cloche"), read(at+"/.ssh/id"), create(at+"/new"))
	c.refused(answers[:2]...)
	c.refused(answers[3])
	c.allowed(answers[4])
	c.holds(conf, "version: 1\n")
}

// L1 C2: a bound folder shows no socket.
func bindHidesSockets(c *check) {
	short := c.shortDir()
	ws, src := c.dir(short, "ws"), c.dir(short, "src")
	c.listen("unix", src+"/s")
	c.listen("unix", src+"/granted")
	at := c.dir(short, "at")
	b := c.box(policy.WithBind(src, at, true), policy.WithBind(src, "/"+c.token, true), policy.AllowSocket(src+"/granted"))
	b.workspace = ws
	answers := b.do(dial(at+"/s"), dial("/"+c.token+"/s"), dial(src+"/s"), dial(src+"/granted"))
	c.refused(answers[:3]...)
	c.reads(answers[3], greeting)
}

// L2: a persisted folder is kept from run to run, for each workspace. The real folder
// is neither seen nor changed.
func persisted(c *check) {
	real := c.file("real", c.home, ".npm/real")
	dir := filepath.Dir(real)
	missing := filepath.Join(c.home, ".pnpm")
	b := c.box(policy.WithPersist(dir, missing))
	answers := b.do(read(real), write(dir+"/kept", "kept"), write(missing+"/kept", "kept"))
	c.refused(answers[0])
	c.allowed(answers[1:]...)
	c.absent(dir + "/kept")
	c.absent(missing)
	for _, a := range b.do(read(dir+"/kept"), read(missing+"/kept")) {
		c.reads(a, "kept")
	}
	other := c.box(policy.WithPersist(dir))
	other.workspace = c.dir(c.base, "home/other")
	c.refused(other.do(read(dir + "/kept"))...)
	c.holds(real, "real")
}

// L4: /etc/hosts has the text of the policy, or a minimal one.
func hostsFile(c *check) {
	c.reads(c.box(policy.Set("hosts", "127.0.0.1 db\n")).do(read("/etc/hosts"))[0], "127.0.0.1 db\n")
	a := c.box().do(read("/etc/hosts"))[0]
	theirs, err := os.ReadFile("/etc/hosts")
	c.must(err)
	if !strings.Contains(string(a.Data), "localhost") || string(a.Data) == string(theirs) {
		c.Errorf("/etc/hosts inside is %q (%s)", a.Data, a.Error)
	}
}

// oddNamesList are names with characters that some program could interpret.
var oddNamesList = []string{
	"with space", `quo"te`, "quo'te", "new\nline", "-dash", "--bind", "col:on", "ünïcödé", "bad\xff\xfeutf8", "%s%n", "dot.", "$HOME", "${HOME}", "`id`", "*", "a?b", "[x]", "back\\slash", "#hash", "~", "cwd", "tab\there", "{a,b}", "urn:cloche:cwd",
}

// F4: a workspace may have any name.
func oddNames(c *check) {
	for _, name := range oddNamesList {
		ws := c.dir(c.ws, name)
		b := c.box()
		b.workspace = ws
		answers := b.do(op{Do: "cwd"}, write(ws+"/out", "text"), write("rel", "text"), create(c.ws+"/beside"))
		c.reads(answers[0], ws)
		c.allowed(answers[1:3]...)
		c.refused(answers[3])
		c.holds(ws+"/out", "text")
		c.holds(ws+"/rel", "text")
	}
}

// maxPath is the length of the longest workspace that is tried. The kernel's limit is
// 4096 bytes, and a backend may need some of them for a prefix.
const maxPath = 3900

// F4: a path close to the kernel's limit works.
func longPath(c *check) {
	ws := c.ws
	for len(ws) < maxPath-100 {
		ws = filepath.Join(ws, strings.Repeat("d", 99))
	}
	c.dir(ws)
	b := c.box()
	b.workspace = ws
	answers := b.do(op{Do: "cwd"}, write(ws+"/out", "text"))
	c.reads(answers[0], ws)
	c.allowed(answers[1])
	c.holds(ws+"/out", "text")
}

// L6: cloche's own files cannot be reached, even if the folders around them are
// granted.
func ownExisting(c *check) {
	d := ownDirs(c.home)
	conf := c.file("version: 1\n", d.Config, "policy.yaml")
	grants := c.file("{}", d.Data, "grants/one.json")
	c.file("{}", d.State, "audit/day.jsonl")
	answers := c.box(policy.AllowWrite(c.home)).do(
		read(conf), write(conf, "after"), create(d.Config+"/new"), fromTo("rename", d.Config, c.home+"/stolen"), read(c.home+"/stolen/policy.yaml"),
		fromTo("rename", c.home+"/.config", c.home+"/c2"), read(c.home+"/c2/cloche/policy.yaml"), on("rmdir", d.Config),
		read(grants), write(grants, "after"), create(d.State+"/audit/new"), umount(d.Config),
	)
	c.refused(answers...)
	c.allowed(c.box(policy.AllowWrite(c.home)).do(create(c.home + "/.config/other"))...)
	c.holds(conf, "version: 1\n")
	c.holds(grants, "{}")
}

// L6: cloche's own files cannot be created where they do not exist yet.
func ownMissing(c *check) {
	d := ownDirs(c.home)
	b := c.box(policy.AllowWrite(c.home))
	b.do(
		on("mkdir", d.Config), create(d.Config+"/policy.yaml"), fromTo("rename", c.home+"/.config", c.home+"/c2"),
		on("mkdir", c.home+"/fake"), on("mkdir", c.home+"/fake/cloche"), create(c.home+"/fake/cloche/policy.yaml"),
		fromTo("rename", c.home+"/fake", c.home+"/.config"), exchange(c.home+"/fake", c.home+"/.config"),
		fromTo("rename", c.home+"/fake/cloche", d.Config), exchange(c.home+"/fake/cloche", d.Config),
		fromTo("symlink", c.home+"/fake", d.State), create(d.Data+"/grants.json"),
	)
	for _, dir := range []string{d.Config, d.Data, d.State, d.Cache} {
		names, _ := os.ReadDir(dir)
		names = slices.DeleteFunc(names, func(e os.DirEntry) bool {
			return dir == d.State && e.Name() == lockName
		})
		if len(names) > 0 {
			c.Errorf("%s was planted: %v", dir, names)
		}
		if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
			c.Errorf("%s is a link now", dir)
		}
	}
}

// F14 L6: using the home folder as the workspace opens neither its secrets nor cloche's
// own files.
func homeIsWorkspace(c *check) {
	d := ownDirs(c.home)
	conf := c.file("version: 1\n", d.Config, "policy.yaml")
	key := c.file(secret, c.home, ".ssh/id")
	b := c.box()
	b.workspace = c.home
	answers := b.do(create(c.home+"/new"), read(key), write(key, "after"), fromTo("rename", c.home+"/.ssh", c.home+"/s"), read(conf), write(conf, "after"), create(d.State+"/new"))
	c.allowed(answers[0])
	c.refused(answers[1:]...)
	c.holds(conf, "version: 1\n")
	c.holds(key, secret)
}

// L2 L6: a persisted folder around cloche's own files works, and shows none of them.
func ownPersistedAround(c *check) {
	conf := c.file(secret, ownDirs(c.home).Config, "policy.yaml")
	around := filepath.Join(c.home, ".config")
	answers := c.box(policy.WithPersist(around)).do(read(conf), create(around+"/new"))
	c.refused(answers[0])
	c.allowed(answers[1])
	c.absent(around + "/new")
	c.holds(conf, secret)
}
