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
	return policy.Workspace("/work")
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
