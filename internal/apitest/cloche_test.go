package apitest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/internal/testlog"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// workspace is an empty folder outside /tmp's private view, owned by the caller.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, p policy.Policy, dir string, opts ...cloche.Option) *cloche.Session {
	t.Helper()
	s, err := cloche.Open(t.Context(), p, append([]cloche.Option{cloche.WithWorkspace(dir)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func capture(t *testing.T, s *cloche.Session, script string) *cloche.Result {
	t.Helper()
	r, err := s.Command(t.Context(), "sh", "-c", script).Capture()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// F3 W4: the result names the backend, and what it was held to held.
func TestCapture(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := workspace(t)
	r := capture(t, open(t, policy.Workspace(dir), dir), "echo out; echo err >&2; echo x > file; echo x > /usr/file; exit 3")
	if r.ExitCode != 3 || string(r.Stdout) != "out\n" || !strings.HasPrefix(string(r.Stderr), "err\n") {
		t.Errorf("result %+v, stdout %q, stderr %q", r, r.Stdout, r.Stderr)
	}
	if r.Backend == "" || !r.Confined || len(r.Gaps) != 0 {
		t.Errorf("backend %q, confined %v, gaps %v", r.Backend, r.Confined, r.Gaps)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Errorf("the workspace is not writable: %v", err)
	}
	if _, err := os.Stat("/usr/file"); err == nil {
		t.Error("/usr was written")
	}
}

// F1 F13: a disabled policy changes nothing and says so.
func TestDisabled(t *testing.T) {
	dir := workspace(t)
	t.Setenv("CLOCHE_TEST_TOKEN", "kept")
	p := policy.Policy{Disabled: true}
	s := open(t, p, dir)
	r := capture(t, s, "echo $CLOCHE_TEST_TOKEN")
	if string(r.Stdout) != "kept\n" || r.Confined || r.Backend != "none" {
		t.Errorf("result %+v %q", r, r.Stdout)
	}
	if !slices.ContainsFunc(r.Notices, func(n plan.Notice) bool { return n.Kind == plan.NoticeUnconfined }) {
		t.Errorf("no notice: %+v", r.Notices)
	}
	if !s.IsWritable("/etc/passwd") {
		t.Error("IsWritable is false where the policy is disabled")
	}
}

// C6: the backend none is an explicit choice, labelled in the result.
func TestBackendNone(t *testing.T) {
	dir := workspace(t)
	r := capture(t, open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir), "echo hi")
	if string(r.Stdout) != "hi\n" || r.Confined || r.Backend != "none" || len(r.Gaps) == 0 {
		t.Errorf("result %+v", r)
	}
}

// broken is a backend that does not work.
type broken struct{}

func (broken) Name() string { return "broken" }

func (broken) Mounts() bool { return false }
func (broken) Available(*host.Snapshot) error {
	return &backend.UnavailableError{Backend: "broken", Probe: host.Probe{Outcome: host.No, Cause: cause.AppArmor, Reason: "AppArmor says no"}}
}
func (broken) Compile(*plan.Plan, *host.Snapshot) (*backend.Launch, error) {
	return nil, errors.New("never asked")
}

func brokenRegistry(t *testing.T) *backend.Registry {
	t.Helper()
	r, err := backend.NewRegistry(backend.Entry{Backend: broken{}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// F2 A11: with no usable backend nothing runs, and the error is typed.
func TestFailClosed(t *testing.T) {
	dir := workspace(t)
	for _, name := range []string{"auto", "required", "broken", "bwrap-not-there"} {
		p := policy.Workspace(dir).With(policy.WithBackend(name))
		if name == "required" {
			p.Backend.Fallback = policy.FallbackWarn
		}
		s := open(t, p, dir, cloche.WithRegistry(brokenRegistry(t)))
		err := s.Command(t.Context(), "touch", "ran").Run()
		var unavailable *cloche.UnavailableError
		if !errors.As(err, &unavailable) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name != "bwrap-not-there" && unavailable.Cause() != cause.AppArmor {
			t.Errorf("%s: cause %q", name, unavailable.Cause())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the command ran")
	}
}

// fallback: warn runs unconfined, labelled and audited.
func TestFallbackWarn(t *testing.T) {
	dir := workspace(t)
	p := policy.Workspace(dir)
	p.Backend.Fallback = policy.FallbackWarn
	var log testlog.Memory
	s := open(t, p, dir, cloche.WithRegistry(brokenRegistry(t)), cloche.WithAudit(&log))
	r := capture(t, s, "echo hi")
	if r.Confined || len(r.Notices) == 0 {
		t.Errorf("result %+v", r)
	}
	events := log.Events()
	if len(events) != 2 || events[0].Confined || len(events[0].Notices) == 0 {
		t.Errorf("events %+v", events)
	}
}

// W8: one line when a run starts, one when it ends; names and never values.
func TestAudit(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := workspace(t)
	var log testlog.Memory
	p := policy.Workspace(dir).With(policy.WithEnv("SECRET_NAME", "secret-value"))
	s := open(t, p, dir, cloche.WithAudit(&log))
	capture(t, s, "exit 4")
	if err := s.Command(t.Context(), "no-such-command").Run(); err == nil {
		t.Fatal("a missing command ran")
	}
	events := log.Events()
	if len(events) != 3 || events[0].Kind != audit.Start || events[1].Kind != audit.End || events[2].Kind != audit.Refused {
		t.Fatalf("events %+v", events)
	}
	if events[1].ExitCode == nil || *events[1].ExitCode != 4 || events[0].Run != events[1].Run || events[0].Backend == "" {
		t.Errorf("end %+v", events[1])
	}
	if !slices.Contains(events[0].Env, "SECRET_NAME") {
		t.Errorf("env names %v", events[0].Env)
	}
}

// failingSink cannot record.
type failingSink struct{}

func (failingSink) Record(audit.Event) error { return errors.New("disk full") }

// A run that cannot be recorded does not happen.
func TestAuditFailureRefuses(t *testing.T) {
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir, cloche.WithAudit(failingSink{}))
	if err := s.Command(t.Context(), "touch", "ran").Run(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the command ran without a record")
	}
}

// F12 W7: a run that is out of time is ended with everything it started, and
// its output so far is kept.
func TestTimeout(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := workspace(t)
	p := policy.Workspace(dir).With(policy.WithLimits(policy.Limits{Time: 300 * time.Millisecond}))
	r := capture(t, open(t, p, dir), "echo before; (trap '' TERM; sleep 60) & sleep 60")
	if !r.TimedOut || string(r.Stdout) != "before\n" {
		t.Errorf("result %+v %q", r, r.Stdout)
	}
}

// W7: the output of both streams together is capped.
func TestOutputCap(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := workspace(t)
	p := policy.Workspace(dir).With(policy.WithLimits(policy.Limits{Output: 1000}))
	r := capture(t, open(t, p, dir), "yes")
	if !r.Truncated || r.Exceeded != "output" || len(r.Stdout)+len(r.Stderr) != 1000 {
		t.Errorf("result %+v, %d bytes", r, len(r.Stdout)+len(r.Stderr))
	}
}

// F12: cancelling the context ends the run.
func TestCancel(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := workspace(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := open(t, policy.Workspace(dir), dir).Command(ctx, "sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	cancel()
	var exit *cloche.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || !exit.Canceled {
		t.Errorf("Wait: %v", err)
	}
}

// A file of the host that is a standard stream is not handed over: it could be
// opened again with more rights than it was given with.
func TestStreamsCannotBeReopened(t *testing.T) {
	dir, outside := workspace(t), workspace(t)
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, policy.Workspace(dir), dir)
	in, err := os.Open(victim)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(victim, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// No more than was there: the output becomes input, too.
	c := s.Command(t.Context(), "sh", "-c", "head -c 5; : > /proc/self/fd/1; echo planted > /proc/self/fd/0; : > /dev/stdout; exit 0")
	c.Stdin, c.Stdout = in, out
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "kept\nkept\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	folder, err := os.Open(outside)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	c = s.Command(t.Context(), "sh", "-c", "touch /proc/self/fd/0/planted")
	c.Stdin = folder
	if err := c.Run(); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder as standard input: %v", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "planted")); err == nil {
		t.Error("a file was planted through standard input")
	}
}

// A strict policy refuses a gap; best effort runs and reports it. The refusal has all gaps that
// best effort would run with.
func TestGaps(t *testing.T) {
	testenv.Need(t, "landlock")
	dir := workspace(t)
	p := policy.Workspace(dir).With(policy.WithBackend("landlock"), policy.ProtectPaths(filepath.Join(dir, "not-yet")))
	err := open(t, p, dir).Command(t.Context(), "touch", "ran").Run()
	var gap *cloche.GapError
	isProtect := func(g backend.Gap) bool {
		return g.Rule == "paths.protect" && !g.Optional && strings.Contains(g.Subject, "not-yet")
	}
	if !errors.As(err, &gap) || !slices.ContainsFunc(gap.Gaps, isProtect) {
		t.Fatalf("strict: %v", err)
	}
	r := capture(t, open(t, p.With(policy.WithRequire(policy.BestEffort)), dir), "true")
	if !slices.ContainsFunc(r.Gaps, isProtect) || !reflect.DeepEqual(r.Gaps, gap.Gaps) {
		t.Errorf("best effort: %+v\nstrict: %+v", r.Gaps, gap.Gaps)
	}
	for _, name := range []string{"not-yet", "ran"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was left behind", name)
		}
	}
}

// L7: a prepared command can be given variables.
func TestSetEnv(t *testing.T) {
	testenv.Need(t, "bwrap")
	dir := workspace(t)
	c := open(t, policy.Workspace(dir), dir).Command(t.Context(), "sh", "-c", `printf %s "$API_TOKEN"`)
	c.SetEnv("API_TOKEN", "v\xff")
	r, err := c.Capture()
	if err != nil || string(r.Stdout) != "v\xff" {
		t.Errorf("%q, %v", r.Stdout, err)
	}
}

// N8: a tool that writes files itself plants no hook and no setting of git, in
// the repository of the workspace or in one that it makes.
func TestOpenFileGuardsGit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no backend guards git directories here")
	}
	dir := t.TempDir()
	for _, d := range []string{".git/hooks", ".git/objects", ".git/refs", "bare/hooks", "bare/objects", "bare/refs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{".git/HEAD", ".git/config", "bare/HEAD", "bare/config", "config", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	none := policy.Policy{}.With(policy.AllowWrite(dir))
	none.Reads = policy.ReadsHost
	single := policy.Policy{}.With(policy.AllowWrite(dir+"/.git/config"), policy.AllowWrite(dir+"/config"), policy.AllowWrite(dir+"/notes.txt"))
	single.Reads, single.Tmp = policy.ReadsHost, policy.TmpShared
	for name, p := range map[string]policy.Policy{"workspace": policy.Workspace(dir), "no presets": none, "single files": single} {
		t.Run(name, func(t *testing.T) { openGuarded(t, open(t, p, dir)) })
	}
}

func openGuarded(t *testing.T, s *cloche.Session) {
	t.Helper()
	for _, name := range []string{".git/config", ".git/hooks/pre-commit", "bare/config", "bare/hooks/post-checkout", ".git/commondir"} {
		if s.IsWritable(name) {
			t.Errorf("%s is said to be writable", name)
		}
		f, err := s.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o755)
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s was opened: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
	for _, name := range []string{"config", "notes.txt"} {
		f, err := s.OpenFile(name, os.O_WRONLY, 0o644)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f.Close()
	}
}

// W6 F13: in-process files are held to the same policy.
func TestOpenFile(t *testing.T) {
	dir := workspace(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := open(t, policy.Workspace(dir).With(policy.HidePaths(secret)), dir)
	for _, p := range []string{"secret", "link", "../" + filepath.Base(dir) + "/secret"} {
		if f, err := s.OpenFile(p, os.O_RDONLY, 0); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v, %v", p, f, err)
		}
	}
	var access *cloche.AccessError
	if _, err := s.OpenFile("/etc/x", os.O_CREATE|os.O_WRONLY, 0o600); !errors.As(err, &access) || !strings.Contains(err.Error(), "--rw /etc/x") {
		t.Errorf("/etc/x: %v", err)
	}
	f, err := s.OpenFile("new", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if s.IsReadable("secret") || !s.IsReadable("new") || !s.IsWritable("new") || s.IsWritable("/usr/x") {
		t.Error("IsReadable or IsWritable is wrong")
	}
	var escape *cloche.EscapeError
	if _, err := s.Confine("../x"); !errors.As(err, &escape) {
		t.Errorf("Confine: %v", err)
	}
}

// F14: a secret that is not there is hidden where a program looks for it.
func TestAbsentSecretIsHidden(t *testing.T) {
	dir := workspace(t)
	t.Setenv("HOME", workspace(t))
	s := open(t, policy.Workspace(dir).With(policy.Set("tmp", "shared")), dir)
	if s.IsReadable(filepath.Join(os.Getenv("HOME"), ".ssh", "id_ed25519")) {
		t.Error("an absent secret would be readable")
	}
	if !s.IsReadable(filepath.Join(os.Getenv("HOME"), "other")) {
		t.Error("an absent file is hidden")
	}
	if s.IsReadable(os.Getenv("HOME") + "/.aws") {
		t.Error("an absent folder of secrets would be readable")
	}
}

// A policy that is wrong is found when the session is opened.
func TestOpenRefusesBadPolicies(t *testing.T) {
	dir := workspace(t)
	for name, p := range map[string]policy.Policy{
		"relative": policy.Workspace(dir).With(policy.AllowRead("relative")),
		"empty":    policy.Workspace(dir).With(policy.AllowWrite("")),
		"missing":  policy.Workspace(dir).With(policy.AllowRead("/no/such/path")),
	} {
		if _, err := cloche.Open(t.Context(), p, cloche.WithWorkspace(dir)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A Cmd runs once.
func TestMisuse(t *testing.T) {
	dir := workspace(t)
	s := open(t, policy.Workspace(dir).With(policy.WithBackend("none")), dir)
	c := s.Command(t.Context(), "true")
	if err := c.Wait(); err == nil {
		t.Error("Wait before Start")
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err == nil {
		t.Error("a second Start")
	}
	if err := c.Wait(); err == nil {
		t.Error("a second Wait")
	}
	if err := s.Command(t.Context(), "").Run(); err == nil {
		t.Error("an empty command")
	}
}

// One gap is named with its reason, several by their rules and by what fixes them.
func TestGapErrorText(t *testing.T) {
	gaps := []backend.Gap{
		{Rule: "tmp", Subject: "/tmp", Reason: "it is closed", Fix: "allow user namespaces"},
		{Rule: "processes", Reason: "they can be seen", Fix: "allow user namespaces"},
	}
	const begin = "backend landlock cannot enforce the whole policy, and it is strict: "
	for want, e := range map[string]*cloche.GapError{
		begin + "tmp /tmp is not enforced: it is closed (allow user namespaces) (to run anyway: --best-effort)":                      {Backend: "landlock", Gaps: gaps[:1]},
		begin + "tmp /tmp; processes (for the reasons: cloche explain; to fix: allow user namespaces; to run anyway: --best-effort)": {Backend: "landlock", Gaps: gaps},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// explained is the plan of a session that has one.
func explained(s *cloche.Session) *plan.Plan {
	p, err := s.Explain()
	if err != nil {
		panic(err)
	}
	return p
}
