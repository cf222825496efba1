package resolve

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// liveMachine is a machine whose home folder and workspace really exist.
func liveMachine(t *testing.T) (snap *host.Snapshot, home string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, "project"), 0o755); err != nil {
		t.Fatal(err)
	}
	snap = machine()
	snap.FS, snap.UID, snap.Home = hostfs.OS{}, os.Getuid(), home
	snap.Environ = []string{"HOME=" + home}
	at := func(p string) string { return filepath.Join(home, p, "cloche") }
	snap.Dirs = host.Dirs{Config: at(".config"), Data: at(".local/share"), State: at(".local/state"), Cache: at(".cache")}
	return snap, home
}

func lineOf(p *plan.Plan, at string) (plan.Path, bool) {
	i := slices.IndexFunc(p.Paths, func(e plan.Path) bool { return e.Path == at })
	if i < 0 {
		return plan.Path{}, false
	}
	return p.Paths[i], true
}

// F3: a folder that a rule wants made is a writable line of the plan, and is made
// only if the caller can and a trusted rule says so.
func TestCreate(t *testing.T) {
	snap, home := liveMachine(t)
	req := Request{Workspace: filepath.Join(home, "project")}
	create := func(p string, untrusted bool) policy.PathRule {
		r := rule(policy.Write, p)
		r.Optional, r.Create, r.Origin.Untrusted = true, true, untrusted
		return r
	}
	got := mustResolve(t, workspacePolicy(create("~/.cache/tool/deep", false), create("~/project/out", false)), req, snap)
	line, ok := lineOf(got, filepath.Join(home, ".cache/tool/deep"))
	if !ok || !line.Create || line.Access != policy.Write || line.Source != line.Path || line.Persisted() || !slices.Equal(line.MadeFirst(), []string{line.Path}) {
		t.Errorf("the line is %+v", line)
	}
	if _, ok := lineOf(got, filepath.Join(home, "project/out")); ok {
		t.Error("a folder is made that the command can make itself")
	}
	if _, err := os.Stat(filepath.Join(home, ".cache")); err == nil {
		t.Error("making a plan made a folder")
	}
	for name, r := range map[string]policy.PathRule{
		"untrusted": create("~/.cache/tool", true), "no home": create("/no-such-home/of/x", false), "of others": create("/proc/1/x", false),
	} {
		p, err := Resolve(workspacePolicy(r), req, snap)
		if err == nil && slices.ContainsFunc(p.Paths, func(e plan.Path) bool { return len(e.MadeFirst()) > 0 && e.Access == policy.Write }) {
			t.Errorf("%s: %s is made", name, r.Path)
		}
	}
}

// L6: a rule cannot have folders made among cloche's own files.
func TestCreateAmongOwnFiles(t *testing.T) {
	snap, home := liveMachine(t)
	r := rule(policy.Write, "~/.local/share/cloche/x")
	r.Create = true
	_, err := Resolve(workspacePolicy(r), Request{Workspace: filepath.Join(home, "project")}, snap)
	if err == nil || !strings.Contains(err.Error(), "cloche keeps its own files") {
		t.Errorf("got %v", err)
	}
}

// F3: what a higher layer lets be made is not hidden by a lower one, and an
// untrusted rule opens nothing.
func TestAbsentOfTwoLayers(t *testing.T) {
	snap, home := liveMachine(t)
	hide := rule(policy.Hidden, "~/project/.tool/login")
	hide.Optional, hide.Origin.Layer = true, policy.LayerPreset
	open := rule(policy.Write, "~/project/.tool/login")
	open.Optional, open.Origin.Layer = true, policy.LayerTool
	snap.Home = filepath.Join(home, "project") // so that what is hidden is not the project's own
	hide.Path, open.Path = "~/.tool/login", "~/.tool/login"
	req := Request{Workspace: filepath.Join(home, "project")}
	for _, untrusted := range []bool{false, true} {
		open.Origin.Untrusted = untrusted
		p := mustResolve(t, workspacePolicy(hide, open), req, snap)
		want := policy.Write
		if untrusted {
			want = policy.Hidden
		}
		if v := judge.NewFiles(p).Path(filepath.Join(home, "project/.tool/login")); v.Access != want {
			t.Errorf("untrusted %v: the access is %s, want %s", untrusted, v.Access, want)
		}
	}
}

// unwritable is a machine whose disk is read-only.
type unwritable struct{ hostfs.OS }

func (unwritable) MayMake(dir string) error {
	return &os.PathError{Op: "write", Path: dir, Err: os.ErrPermission}
}

// F3: a folder that a preset wants made and that cannot be is said, and the rest of
// the policy holds. A rule that insists is left to fail by name.
func TestCreateThatCannot(t *testing.T) {
	snap, home := liveMachine(t)
	snap.FS = unwritable{}
	req := Request{Workspace: filepath.Join(home, "project")}
	r := rule(policy.Write, "~/.tool/cache")
	r.Create, r.Optional = true, true
	p := mustResolve(t, workspacePolicy(r), req, snap)
	if _, ok := lineOf(p, filepath.Join(home, ".tool/cache")); ok || !hasNotice(p, plan.NoticeWarning, "~/.tool/cache", "cannot be made") {
		t.Errorf("the notices are %v", p.Notices)
	}
	r.Optional = false
	if p := mustResolve(t, workspacePolicy(r), req, snap); len(p.Paths) == 0 || hasNotice(p, plan.NoticeWarning, "cannot be made") {
		t.Errorf("the notices are %v", p.Notices)
	}
}
