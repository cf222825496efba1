package backendtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// verifyCases let Session.Verify try every rule of a policy. They name no rules of
// their own: a gap that the backend declares is a finding, and one that it does not
// declare fails the case.
var verifyCases = []testCase{
	{"verify/workspace", nil, func(c *check) { c.verify(c.box()) }},
	{"verify/strict", nil, func(c *check) { c.verify(c.preset("strict")) }},
	{"verify/readonly", nil, func(c *check) { c.verify(c.preset("readonly", policy.AllowRead(c.base))) }},
	{"verify/open", nil, func(c *check) { c.verify(c.preset("open")) }},
	{"verify/paths", nil, verifyPaths},
	{"verify/patterns", nil, verifyPatterns},
	{"verify/layout", nil, verifyLayout},
	{"verify/remap", nil, verifyRemap},
	{"verify/sockets", nil, verifySockets},
	{"verify/network", nil, verifyNetwork},
	{"verify/environment", nil, verifyEnvironment},
	{"verify/limits", nil, verifyLimits},
}

// verify tries all rules of a box and returns the result. It fails the case if anything
// is left on the host.
func (c *check) verify(b *box) *cloche.Verification {
	self, err := os.Executable()
	c.must(err)
	before := c.tree()
	s := b.open(policy.BestEffort)
	b.warmUp(s)
	v, err := s.Verify(c.ctx, self, verifyWord, c.token)
	if err != nil {
		c.Fatalf("the rules cannot be tried: %v", err)
	}
	for _, f := range v.Findings {
		if f.Outcome == cloche.OutcomeNotHeld {
			c.Errorf("%s %s (%s): %s", f.Rule, f.Subject, f.Origin, f.Detail)
		}
	}
	if after := c.tree(); !slices.Equal(before, after) {
		c.Errorf("trying the rules changed the host: before %q, after %q", before, after)
	}
	return v
}

// tree lists the files of the case with their modes, sizes and times. It leaves out the
// times of folders, which change with the files in them.
func (c *check) tree() []string {
	var out []string
	c.must(filepath.WalkDir(c.base, func(p string, d fs.DirEntry, err error) error {
		// The store of persisted folders is created for the run and kept.
		if err != nil || p == ownDirs(c.home).Data || p == filepath.Join(c.home, ".local") {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := p + " " + info.Mode().String()
		if !d.IsDir() {
			line += fmt.Sprint(" ", info.Size(), " ", info.ModTime().UnixNano())
		}
		out = append(out, line)
		return nil
	}))
	return out
}

// tried fails the case unless a rule about the subject was tried.
func (c *check) tried(v *cloche.Verification, rule, subject string) {
	for _, f := range v.Findings {
		if f.Rule == rule && f.Subject == subject && f.Outcome != cloche.OutcomeNotTestable {
			return
		}
	}
	c.Errorf("%s of %s was not tried", rule, subject)
}

// N7: hidden, read-only and protected paths: files, folders, links and paths that do
// not exist.
func verifyPaths(c *check) {
	key, secrets := c.file(secret, c.ws, "deep/down/key"), filepath.Dir(c.file(secret, c.ws, "secrets/key"))
	shown := filepath.Dir(c.file("shown", secrets, "shown/file"))
	kept, vendor := c.file("kept", c.ws, "kept"), filepath.Dir(c.file("lib", c.ws, "vendor/lib"))
	hooks, absent := filepath.Dir(c.file("hook", c.ws, "hooks/hook")), filepath.Join(c.ws, "not/yet")
	elsewhere := c.file("text", c.outside, "writable")
	link := filepath.Join(c.ws, "link")
	c.must(os.Symlink("vendor", link))
	v := c.verify(c.box(policy.HidePaths(key, secrets), policy.AllowRead(vendor, shown), policy.ProtectPaths(kept, hooks, absent, link), policy.AllowWrite(elsewhere)))
	for _, p := range []string{key, secrets} {
		c.tried(v, "paths.hide", p)
	}
	for _, p := range []string{kept, hooks, absent, link} {
		c.tried(v, "paths.protect", p)
	}
	c.tried(v, "paths.read", shown)
	c.tried(v, "paths.write", elsewhere)
	c.tried(v, "paths.write", c.ws)
}

// N7 N9: patterns, for names that do not exist yet.
func verifyPatterns(c *check) {
	c.file(secret, c.ws, "deep/a.pem")
	protect, hide := "urn:cloche:workspace/**/.envrc", "urn:cloche:workspace/**/*.pem"
	v := c.verify(c.box(policy.ProtectPaths("**/.tool", protect), policy.HidePaths(hide)))
	c.tried(v, "paths.protect", "/**/.tool")
	c.tried(v, "paths.protect", c.ws+"/**/.envrc")
	c.tried(v, "paths.hide", c.ws+"/**/*.pem")
}

// N7 L1 L2 L4: paths that show something else than on the host.
func verifyLayout(c *check) {
	src := filepath.Dir(c.file("text", c.outside, "src/file"))
	at, ro, cache := c.dir(c.outside, "at"), c.dir(c.outside, "ro"), c.dir(c.home, ".npm")
	v := c.verify(c.box(policy.WithBind(src, at, false), policy.WithBind(src, ro, true), policy.WithPersist(cache), policy.Set("hosts", "127.0.0.1 db\n")))
	c.tried(v, "paths.write", at)
	c.tried(v, "paths.read", ro)
	c.tried(v, "persist", cache)
}

// N7 L3: the rules of a workspace that is at another path inside.
func verifyRemap(c *check) {
	key, kept := c.file(secret, c.ws, "key"), c.file("before", c.ws, "kept")
	v := c.verify(c.box(policy.Set("remap", "/workspace"), policy.HidePaths(key), policy.ProtectPaths(kept)))
	c.tried(v, "paths.hide", "/workspace/key")
	c.tried(v, "paths.protect", "/workspace/kept")
}

// N7 C2: hidden sockets, and a granted one.
func verifySockets(c *check) {
	short := c.shortDir()
	ws := c.dir(short, "ws")
	c.listen("unix", ws+"/s")
	c.listen("unix", ws+"/granted")
	b := c.box(policy.AllowSocket(ws + "/granted"))
	b.workspace = ws
	v := c.verify(b)
	c.tried(v, "sockets", ws+"/s")
	c.tried(v, "sockets", ws+"/granted")
}

// N7 C3: every mode of the network.
func verifyNetwork(c *check) {
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback, policy.NetworkUser, policy.NetworkHost} {
		c.tried(c.verify(c.box(policy.WithNetwork(mode))), "network.mode", mode.String())
	}
}

// N7 A4 W2: variables and their values, and that there are no others.
func verifyEnvironment(c *check) {
	b := c.box(policy.PassEnv("BYTES"), policy.WithEnv("SET", "a=b\n"))
	b.environ = append(b.environ, "BYTES=\xff\xfe", "OTHER=1", "GITHUB_TOKEN="+c.token)
	v := c.verify(b)
	for _, name := range []string{"BYTES", "SET", "HOME", "PATH", "all others"} {
		c.tried(v, "env", name)
	}
}

// N7 W7: limits that the kernel enforces.
func verifyLimits(c *check) {
	v := c.verify(c.box(policy.WithLimits(policy.Limits{Processes: 100, OpenFiles: 100, FileSize: 1 << 20})))
	c.tried(v, "limits.open_files", "100")
	c.tried(v, "limits.file_size", "1048576")
}
