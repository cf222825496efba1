package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// N1: where the workspace has another place inside, options name the host's.
func TestDenialGrantInRemapped(t *testing.T) {
	for _, c := range []struct {
		d    plan.Decision
		want string
	}{
		{plan.Decision{Op: plan.OpRead, Path: "/ws/.env", Rule: "paths.hide_found"}, "--ro /home/ana/p/.env"},
		{plan.Decision{Op: plan.OpCreate, Path: "/ws/a/.envrc", Rule: "paths.protect", At: "/ws/a/.envrc", Origin: policy.Origin{Layer: policy.LayerPreset}}, "--rw '?/home/ana/p/a/.envrc'"},
		{plan.Decision{Op: plan.OpWrite, Path: "/ws2/x"}, "--rw /ws2/x"},
		{plan.Decision{Op: plan.OpRead, Path: "/ws"}, "--ro /home/ana/p"},
	} {
		Fixer{Plan: &plan.Plan{Workspace: "/home/ana/p", Inside: "/ws"}}.Fix(&c.d)
		if got := runoption.Text(c.d.Fix...); got != c.want {
			t.Errorf("%s: %s, want %s", c.d.Path, got, c.want)
		}
		Fixer{Plan: &plan.Plan{Workspace: "/ws", Inside: "/ws"}}.Fix(&c.d)
		if got := runoption.Text(c.d.Fix...); strings.Contains(got, "ana") {
			t.Errorf("%s: %s", c.d.Path, got)
		}
	}
}

// N1: where a rule that protects a folder stands against an option for the folder, the
// option for only what was attempted is suggested, if somebody tried it and it works.
func TestDenialGrantBelowProtected(t *testing.T) {
	protected := func(op plan.Op, path string, o policy.Origin) plan.Decision {
		return plan.Decision{Op: op, Path: path, Access: policy.Read, Rule: ruleProtect, At: "/ws/a", Subject: "/ws/a", Origin: o}
	}
	untrusted, command, preset := policy.Origin{Layer: policy.LayerProject, Untrusted: true}, policy.Origin{Layer: policy.LayerCommand}, policy.Origin{Layer: policy.LayerPreset}
	builtin := policy.Origin{Layer: policy.LayerBuiltin}
	for _, c := range []struct {
		d     plan.Decision
		works []string
		want  string
	}{
		{protected(plan.OpWrite, "/ws/a/f", untrusted), []string{"/p/a/f"}, "--rw /p/a/f"},
		{protected(plan.OpWrite, "/ws/a/f", command), []string{"/p/a/f"}, "--rw /p/a/f"},
		{protected(plan.OpCreate, "/ws/a/b/new", untrusted), []string{"/p/a/b"}, "--rw /p/a/b"},
		{protected(plan.OpWrite, "/ws/a/f", preset), []string{"/p/a", "/p/a/f"}, "--rw /p/a"},
		{protected(plan.OpWrite, "/ws/a/f", untrusted), []string{"/p/a"}, ""},         // the rule stands
		{protected(plan.OpCreate, "/ws/a/new", untrusted), []string{"/p/a"}, ""},      // the same
		{protected(plan.OpCreate, "/ws/a", untrusted), []string{"/p", "/p/a"}, ""},    // not what is around it
		{protected(plan.OpWrite, "/ws/a/f", builtin), []string{"/p/a", "/p/a/f"}, ""}, // cloche's own
		{protected(plan.OpWrite, "/ws/a/f", untrusted), nil, ""},                      // nobody can tell
	} {
		f := Fixer{Plan: &plan.Plan{Workspace: "/p", Inside: "/ws"}}
		if c.works != nil {
			f.Works = func(_ *plan.Decision, e policy.Edit) bool { return slices.Contains(c.works, e.Value) }
		}
		f.Fix(&c.d)
		if got := runoption.Text(c.d.Fix...); got != c.want {
			t.Errorf("%s %s, %v: %q, want %q", c.d.Op, c.d.Path, c.works, got, c.want)
		}
		c.d.Outside = true
		if f.Fix(&c.d); len(c.d.Fix) > 0 {
			t.Errorf("%s %s: an option for what is refused outside, too", c.d.Op, c.d.Path)
		}
	}
}

// N1: an option that opens a whole home or a folder of the system has a narrower one
// beside it, wherever the home is and whatever characters are in its name.
func TestDenialNarrower(t *testing.T) {
	for _, c := range []struct{ home, path, want string }{
		{"", "/usr/share/x", "--rw /usr/share/x"},
		{"", "/home/ana/x", "--rw /home/ana/x"},
		{"", "/home/ana lee/x", "--rw '/home/ana lee/x'"},
		{"/srv/homes/staff/ana", "/srv/homes/staff/ana/x", "--rw /srv/homes/staff/ana/x"},
		{"/srv/homes/staff/ana", "/srv/homes/staff/x", "--rw /srv/homes/staff/x"},
		{"/srv/homes/staff/ana", "/srv/homes/staff/ana/notes/x", ""},
		{"/srv/homes/staff/ana", "/srv/homes/staff/anabel/x", ""},
		{"", "/srv/homes/staff/x", ""},
	} {
		for _, op := range []plan.Op{plan.OpCreate, plan.OpMkdir} {
			d := plan.Decision{Op: op, Path: c.path, Rule: "paths.read", At: "/", Access: policy.Read}
			if got := narrower(&plan.Plan{Home: c.home}, d); got != c.want {
				t.Errorf("%s %s with the home %q: %q, want %q", op, c.path, c.home, got, c.want)
			}
		}
		// A file that is there is opened alone.
		d := plan.Decision{Op: plan.OpWrite, Path: c.path, Rule: "paths.read", At: "/", Access: policy.Read}
		if got := narrower(nil, d); got != "" {
			t.Errorf("write %s: %q", c.path, got)
		}
	}
}

func narrower(p *plan.Plan, d plan.Decision) string {
	Fixer{Plan: p}.Fix(&d)
	if d.Narrower != nil {
		return runoption.Text(*d.Narrower)
	}
	return ""
}
