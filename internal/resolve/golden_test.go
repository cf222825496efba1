package resolve_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

const plans = "testdata/plans"

// C5 W5 F3 F5 F14 A1 A2 L1 L2 L3 L6: the whole plan for each policy on each recorded
// machine, as a person has looked at it.
func TestGoldenPlans(t *testing.T) {
	files := map[string]bool{}
	for _, c := range slices.Concat(goldentest.Cases(t), goldentest.MacCases(t)) {
		file := filepath.Join(plans, c.Name+".txt")
		files[file] = true
		t.Run(c.Name, func(t *testing.T) { goldentest.Compare(t, file, planText(t, c)) })
	}
	goldentest.OnlyThese(t, plans, files)
}

// The same policy on the same machine gives the same plan, byte for byte.
func TestPlansAreDeterministic(t *testing.T) {
	first := map[string]string{}
	for _, c := range goldentest.Cases(t) {
		first[c.Name] = planText(t, c)
	}
	for range 5 {
		for _, c := range goldentest.Cases(t) {
			if got := planText(t, c); got != first[c.Name] {
				t.Fatalf("%s: two plans differ:\n%s\n%s", c.Name, first[c.Name], got)
			}
		}
	}
}

// planText is the plan as JSON, or the error for which there is none.
func planText(t *testing.T, c goldentest.Case) string {
	t.Helper()
	p, err := resolve.Resolve(c.Policy, resolve.Request{Workspace: c.Host.Cwd, Name: c.Command}, c.Host)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	// The presets name many paths, and a machine has few of them; their patterns
	// are the same everywhere, and have tests of their own.
	p.Notices = slices.DeleteFunc(p.Notices, func(n plan.Notice) bool {
		return n.Kind == plan.NoticeSkipped && (n.Origin.Source == "preset secrets" || n.Origin.Source == "preset sinks")
	})
	p.Globs = slices.DeleteFunc(p.Globs, func(g plan.Glob) bool { return g.Origin.Layer == policy.LayerPreset })
	p.Exempt = slices.DeleteFunc(p.Exempt, func(e plan.Exemption) bool { return e.Origin.Layer == policy.LayerPreset })
	whole, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return onePerLine(t, whole)
}

// onePerLine writes a JSON object with each element of its lists on one line.
func onePerLine(t *testing.T, object []byte) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var list []json.RawMessage
		if err := json.Unmarshal(fields[name], &list); err != nil {
			fmt.Fprintf(&b, "%s: %s\n", name, fields[name])
			continue
		}
		fmt.Fprintf(&b, "%s:\n", name)
		for _, e := range list {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	return b.String()
}

// L4 L5 A2: on every recorded machine names are looked up by the sandbox's own
// server, wherever its files really are.
func TestResolverFilesEverywhere(t *testing.T) {
	where := map[string]string{"fedora-42": "/run/systemd/resolve/stub-resolv.conf", "ubuntu-24.04-apparmor": "/run/systemd/resolve/stub-resolv.conf"}
	for _, c := range goldentest.Cases(t) {
		machine := strings.TrimSuffix(c.Name, filepath.Ext(c.Name))
		p, err := resolve.Resolve(c.Policy.With(policy.AllowHosts("a.example")), resolve.Request{Workspace: c.Host.Cwd}, c.Host)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		found := map[string]string{}
		for _, e := range p.Paths {
			if e.Content == plan.Text {
				first, _, _ := strings.Cut(e.Text, " ")
				found[first] = e.Path
			}
		}
		want := where[machine]
		if want == "" {
			want = "/etc/resolv.conf"
		}
		if found["nameserver"] != want || found["hosts:"] == "" || len(found) != 3 {
			t.Errorf("%s: texts are at %v", c.Name, found)
		}
	}
}
