package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// A site is a home with a project in it.
type site struct {
	t                          *testing.T
	home, config, data, work   string
	userFile, projectFile, sub string
}

func newSite(t *testing.T) *site {
	t.Helper()
	// The search for a project file compares real paths.
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, home: filepath.Join(root, "home")}
	s.config, s.data = filepath.Join(s.home, "config"), filepath.Join(s.home, "data")
	s.work = filepath.Join(s.home, "work")
	s.sub = filepath.Join(s.work, "a", "b")
	s.userFile, s.projectFile = filepath.Join(s.config, UserFileName), filepath.Join(s.work, ProjectFileName)
	for _, dir := range []string{s.config, s.data, s.sub} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) options() Options {
	return Options{Workspace: s.sub, Home: s.home, ConfigDir: s.config, DataDir: s.data}
}

func (s *site) load(opts Options) Loaded {
	s.t.Helper()
	l, err := Load(opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func has(p policy.Policy, path string, a policy.Access) bool {
	return slices.ContainsFunc(p.Paths, func(r policy.PathRule) bool { return r.Path == filepath.ToSlash(path) && r.Access == a })
}

func TestNoFiles(t *testing.T) {
	s := newSite(t)
	l := s.load(s.options())
	if len(l.Files) != 0 || l.Policy.Network.Mode != policy.NetworkNone || l.Policy.Reads != policy.ReadsHost {
		t.Errorf("got %+v", l)
	}
}

// F7: the layers, highest first: session, command, project, user, preset.
func TestLayers(t *testing.T) {
	s := newSite(t)
	s.write(s.userFile, "enabled: false\nnetwork: loopback\ntmp: shared\npaths: {write: [/user]}\n")
	s.write(s.projectFile, "network: none\npaths: {hide: [secret]}\n")
	extra := filepath.Join(s.home, "extra.yaml")
	s.write(extra, "network: host\npaths: {read: [data]}\n")
	opts := s.options()
	opts.PolicyFiles = []string{extra}
	var err error
	if opts.Command, err = policy.ParseIn("flags", "/cwd", []byte("presets: [strict]\npaths: {write: [\"?out\"]}")); err != nil {
		t.Fatal(err)
	}
	on := true
	opts.Session = &on
	l := s.load(opts)
	p := l.Policy
	if p.Disabled || p.Network.Mode != policy.NetworkHost || p.Tmp != policy.TmpShared || p.Reads != policy.ReadsSystem {
		t.Errorf("got %+v", p)
	}
	if p.DisabledOrigin.Layer != policy.LayerSession || p.Network.Origin.Source != extra {
		t.Errorf("origins are %v and %v", p.DisabledOrigin, p.Network.Origin)
	}
	if !has(p, "/user", policy.Write) || !has(p, "/cwd/out", policy.Write) ||
		!has(p, filepath.Join(s.work, "secret"), policy.Hidden) || !has(p, filepath.Join(s.home, "data"), policy.Read) {
		t.Errorf("paths are %+v", p.Paths)
	}
	var files []string
	for _, f := range l.Files {
		files = append(files, f.Path)
		if len(f.SHA256) != 64 {
			t.Errorf("%s has the sum %q", f.Path, f.SHA256)
		}
	}
	if !slices.Equal(files, []string{s.userFile, s.projectFile, extra}) {
		t.Errorf("files are %q", files)
	}
}

// F7: a project file may loosen only after the user trusted that exact content.
func TestTrustIsForExactContent(t *testing.T) {
	s := newSite(t)
	const text = "network: host\n"
	s.write(s.projectFile, text)
	check := func(when string, want policy.NetworkMode) {
		t.Helper()
		l := s.load(s.options())
		trusted := want == policy.NetworkHost
		if l.Policy.Network.Mode != want || (len(l.Ignored) == 0) != trusted || l.Files[0].Trusted != trusted || (l.Files[0].Why == "") != trusted {
			t.Errorf("%s: network %s, ignored %v, file %+v", when, l.Policy.Network.Mode, l.Ignored, l.Files[0])
		}
	}
	store := OpenTrust(s.data)
	check("before", policy.NetworkNone)
	if _, err := store.Trust(s.projectFile); err != nil {
		t.Fatal(err)
	}
	check("trusted", policy.NetworkHost)
	s.write(s.projectFile, text+"#\n")
	check("changed", policy.NetworkNone)
	s.write(s.projectFile, text)
	check("changed back", policy.NetworkHost)
	if found, err := store.Untrust(s.projectFile); !found || err != nil {
		t.Fatal(found, err)
	}
	check("untrusted", policy.NetworkNone)
	if found, err := store.Untrust(s.projectFile); found || err != nil {
		t.Fatal(found, err)
	}
}

// F7: the same content in another folder is not trusted, nor is a link to it.
func TestTrustIsForExactPath(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "network: host\n")
	if _, err := OpenTrust(s.data).Trust(s.projectFile); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(s.home, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	opts := s.options()
	opts.Workspace = other
	s.write(filepath.Join(other, ProjectFileName), "network: host\n")
	if l := s.load(opts); l.Policy.Network.Mode != policy.NetworkNone {
		t.Error("a copy is trusted")
	}
	if err := os.Remove(filepath.Join(other, ProjectFileName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.projectFile, filepath.Join(other, ProjectFileName)); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	if _, err := Load(opts); err == nil || !strings.Contains(err.Error(), "link out of its folder") {
		t.Errorf("a link borrows the trust of its target: %v", err)
	}
	// The project itself, reached through a link, is the same project.
	alias := filepath.Join(s.home, "alias")
	if err := os.Symlink(s.work, alias); err != nil {
		t.Fatal(err)
	}
	opts.Workspace = alias
	if l := s.load(opts); l.Policy.Network.Mode != policy.NetworkHost {
		t.Error("the project is not trusted by its other path")
	}
}

func TestProjectSearch(t *testing.T) {
	s := newSite(t)
	s.write(filepath.Join(filepath.Dir(s.home), ProjectFileName), "network: host\n")
	if files, err := FindProjects(s.sub, s.home); len(files) != 0 || err != nil {
		t.Errorf("the search went past the home folder: %q, %v", files, err)
	}
	s.write(filepath.Join(s.home, ProjectFileName), "")
	s.write(s.projectFile, "")
	if files, err := FindProjects(s.sub, s.home); len(files) != 2 || files[0] != s.projectFile || err != nil {
		t.Errorf("got %q, %v; want the nearest one first", files, err)
	}
	if files, err := FindProjects(s.home, s.home); len(files) != 1 || files[0] != filepath.Join(s.home, ProjectFileName) || err != nil {
		t.Errorf("got %q, %v; want that of the home folder itself", files, err)
	}
	opts := s.options()
	opts.NoProject = true
	if l := s.load(opts); len(l.Files) != 0 {
		t.Errorf("the project's file was read: %v", l.Files)
	}
	if _, err := FindProjects(filepath.Join(s.home, "missing"), s.home); err == nil {
		t.Error("a missing workspace is no error")
	}
}

// W1
func TestCapabilitiesFile(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(s.home, "caps.json")
	s.write(file, `{"net": false, "read_paths": ["/data"], "env": "inherit"}`)
	opts := s.options()
	opts.Capabilities = file
	p := s.load(opts).Policy
	if p.Network.Mode != policy.NetworkNone || p.Reads != policy.ReadsSystem || p.Env.Mode != policy.EnvInherit || !has(p, "cwd", policy.Write) {
		t.Errorf("got %+v", p)
	}
}

func TestLoadErrors(t *testing.T) {
	s := newSite(t)
	s.write(s.userFile, "paths: {write: [relative]}\n")
	s.write(s.projectFile, "nework: none\n")
	opts := s.options()
	opts.PolicyFiles = []string{filepath.Join(s.home, "missing.yaml"), s.work}
	_, err := Load(opts)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		s.userFile + `:1:17: paths.write[0]: "relative" is relative`,
		s.projectFile + `:1:1: nework: unknown key; did you mean "network"?`,
		"--policy " + filepath.Join(s.home, "missing.yaml") + ": ",
		"--policy " + s.work + ": ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Error("the missing file cannot be told from the error")
	}
	opts = Options{UserFile: filepath.Join(s.home, "missing.yaml")}
	if _, err := Load(opts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a user file that was named and is missing: %v", err)
	}
}

// What the layers make together is validated too.
func TestLoadValidates(t *testing.T) {
	s := newSite(t)
	s.write(s.userFile, "network: {deny: [a.example]}\n")
	opts := s.options()
	opts.Command = &policy.Document{}
	if err := opts.Command.Set("presets", "open", "--preset open"); err != nil {
		t.Fatal(err)
	}
	_, err := Load(opts)
	var invalid *policy.Error
	if !errors.As(err, &invalid) || invalid.Field != "network.deny" {
		t.Errorf("got %v", err)
	}
}

// F7: a file that a command left in a folder of its workspace does not undo what
// the project's own file above takes away.
func TestNearerFileDoesNotShadow(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "paths: {hide: [secret]}\n")
	s.write(filepath.Join(s.sub, ProjectFileName), "version: 1\nnetwork: host\n")
	opts := s.options()
	opts.Workspace = s.sub
	l := s.load(opts)
	if len(l.Files) != 2 || l.Policy.Network.Mode == policy.NetworkHost {
		t.Fatalf("files %v, network %v", l.Files, l.Policy.Network.Mode)
	}
	for _, r := range l.Policy.Paths {
		if r.Access == policy.Hidden && r.Origin.Source == s.projectFile {
			return
		}
	}
	t.Error("the rule of the file above is gone")
}

// C2: a project file that is a link out of its folder is refused, and nothing of what it
// leads to is shown. A link within the folder is followed.
func TestProjectFileLeadsOut(t *testing.T) {
	dir := t.TempDir()
	ws := filepath.Join(dir, "ws")
	const secret = "root:$6$salt$S3CRETHASH:19000:0:99999:7:::\n"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(ws+"/conf", 0o755))
	must(os.WriteFile(dir+"/shadow", []byte(secret), 0o600))
	file := filepath.Join(ws, ProjectFileName)
	for _, target := range []string{"../shadow", dir + "/shadow"} {
		_ = os.Remove(file)
		must(os.Symlink(target, file))
		_, err := Load(Options{Workspace: ws, Home: dir, ConfigDir: dir + "/config", DataDir: dir + "/data"})
		if err == nil || !strings.Contains(err.Error(), "link out of its folder") || strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("%s: %v", target, err)
		}
	}
	_ = os.Remove(file)
	must(os.WriteFile(ws+"/conf/policy.yaml", []byte("reads: system\n"), 0o644))
	must(os.Symlink("conf/policy.yaml", file))
	if _, err := Load(Options{Workspace: ws, Home: dir, ConfigDir: dir + "/config", DataDir: dir + "/data"}); err != nil {
		t.Error(err)
	}
	_ = os.Remove(file)
	must(os.WriteFile(file, []byte(secret), 0o600))
	if _, err := Load(Options{Workspace: ws, Home: dir, ConfigDir: dir + "/config", DataDir: dir + "/data"}); err == nil || strings.Contains(err.Error(), "S3CRET") {
		t.Errorf("a line that is no key: %v", err)
	}
}
