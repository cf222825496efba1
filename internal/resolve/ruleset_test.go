package resolve

import (
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// ownMachine is a machine with a few of the files that presets are about.
func ownMachine(home string, files ...string) *host.Snapshot {
	tree := hostfs.Tree{home: "dir", "/work": "dir", "/usr/bin/true": "exec", "/etc/hosts": "file"}
	for _, f := range files {
		tree[f] = "file"
	}
	return &host.Snapshot{OS: "linux", UID: 1000, Home: home, Environ: []string{"HOME=" + home, "PATH=/usr/bin"}, FS: tree}
}

func ownPolicy() policy.Policy {
	p := policy.Workspace("/work")
	p.Paths = Own(p.Paths)
	return p
}

var ownRequest = Request{Workspace: "/work", Name: "true", Args: []string{"true"}}

// F4: a plan that shares what an earlier one has is the plan that is made alone,
// whatever the machine was like before.
func TestSharedPlansAreTheSame(t *testing.T) {
	moved := ownMachine("/home/ana", "/data/config/gh/hosts.yml")
	moved.Environ = append(moved.Environ, "XDG_CONFIG_HOME=/data/config", "XDG_CACHE_HOME=/data/cache", "CARGO_HOME=/data/cargo")
	others := ownMachine("/home/ana")
	others.Homes, others.Others = []string{"/home/old"}, []string{"/home/bob"}
	machines := []*host.Snapshot{
		ownMachine("/home/ana"), ownMachine("/home/ana", "/home/ana/.ssh/id_ed25519", "/home/ana/.netrc"),
		ownMachine("/home/bob"), moved, others, ownMachine("/home/ana/"),
	}
	own := ownPolicy()
	for round := range 2 {
		for i, m := range machines {
			got, err := Resolve(own, ownRequest, m)
			if err != nil {
				t.Fatal(err)
			}
			alone := own
			alone.Paths = slices.Clone(own.Paths)
			want, err := Resolve(alone, ownRequest, m)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("round %d, machine %d: the plan differs from one that is made alone", round, i)
			}
		}
	}
}

// F4: commands of one policy on one machine share the long lists.
func TestPlansShareLists(t *testing.T) {
	own, m := ownPolicy(), ownMachine("/home/ana")
	one, err := Resolve(own, ownRequest, m)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Resolve(own, ownRequest, m)
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Globs) == 0 || &one.Globs[0] != &two.Globs[0] || len(one.Absent) == 0 || &one.Absent[0] != &two.Absent[0] {
		t.Errorf("%d globs and %d absent paths are made again for a second plan", len(one.Globs), len(one.Absent))
	}
	if cap(two.Globs) != len(two.Globs) || cap(two.Absent) != len(two.Absent) {
		t.Error("who appends to a plan's list would write into that of another plan")
	}
}

// F4: a plan that somebody changed, or that moves the workspace, changes no other.
func TestChangedPlanChangesNoOther(t *testing.T) {
	own, m := ownPolicy(), ownMachine("/home/ana")
	alone := own
	alone.Paths = slices.Clone(own.Paths)
	want, err := Resolve(alone, ownRequest, m)
	if err != nil {
		t.Fatal(err)
	}
	spoilt, err := Resolve(own, ownRequest, m)
	if err != nil {
		t.Fatal(err)
	}
	clear(spoilt.Globs[1:])
	clear(spoilt.Absent)
	remapped := own
	remapped.Remap = "/elsewhere"
	if _, err := Resolve(remapped, ownRequest, m); err != nil {
		t.Fatal(err)
	}
	got, err := Resolve(own, ownRequest, m)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the plan is not the one that was made before")
	}
}

// F4: a caller who changes its policy afterwards does not change what is kept of it.
func TestOwnRulesAreCopies(t *testing.T) {
	p := policy.Workspace("/work")
	own := Own(p.Paths)
	p.Paths[0].Path = "/elsewhere"
	if own[0].Path == "/elsewhere" {
		t.Error("the caller's change is in the copy")
	}
	if again := Own(policy.Workspace("/work").Paths); &again[0] != &own[0] {
		t.Error("equal rules got another copy")
	}
	for range 2 * maxRuleSets {
		p.Paths[0].Path += "x"
		if got := Own(p.Paths); !slices.Equal(got, p.Paths) {
			t.Fatal("the copy differs")
		}
	}
	if n := len(ruleSets.list); n > maxRuleSets {
		t.Errorf("%d sets are kept", n)
	}
	if got := Own(nil); len(got) != 0 || ownSet(got) != nil {
		t.Errorf("no rules are %v", got)
	}
}

// F4: commands of many sessions are prepared at the same time.
func TestSharedPlansAtOnce(t *testing.T) {
	machines := []*host.Snapshot{ownMachine("/home/ana"), ownMachine("/home/bob", "/home/bob/.netrc")}
	var want [2]*plan.Plan
	for i, m := range machines {
		p, err := Resolve(policy.Workspace("/work"), ownRequest, m)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = p
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 10 {
				got, err := Resolve(ownPolicy(), ownRequest, machines[i%2])
				if err != nil || !reflect.DeepEqual(got, want[i%2]) {
					t.Errorf("machine %d: %v, or another plan", i%2, err)
				}
			}
		})
	}
	all.Wait()
}
