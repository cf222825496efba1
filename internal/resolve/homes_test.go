package resolve

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/judge"
	"github.com/cloche-dev/cloche/internal/runoption"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// F14: the homes of others are hidden with the caller's own secrets. In one that
// the workspace is in, only secrets are; folders for everybody stay.
func TestHomesOfOthers(t *testing.T) {
	s := machine()
	tree := s.FS.(hostfs.Tree)
	for _, home := range []string{"bo", "cy", "linuxbrew"} {
		tree["/home/"+home+"/.ssh/id"] = "key"
		tree["/home/"+home+"/notes"] = "text"
	}
	tree["/home/cy/project/x"] = "text"
	s.Others = []string{"/home/bo", "/home/cy", "/home/linuxbrew", "/home/gone"}
	secret := rule(policy.Hidden, "~/.ssh")
	secret.Optional, secret.Origin = true, policy.Origin{Layer: policy.LayerPreset, Source: "preset secrets", Line: 17}
	p := mustResolve(t, workspacePolicy(secret), Request{Workspace: "/home/cy/project"}, s)
	wantAccess(t, p, map[string]policy.Access{
		"/home/bo/notes": policy.Hidden, "/home/bo/.ssh/id": policy.Hidden, "/home/cy/notes": policy.Read, "/home/cy/.ssh/id": policy.Hidden,
		"/home/cy/project/x": policy.Write, "/home/linuxbrew/notes": policy.Read,
	})
	// No line of the preset is about them, and none is named.
	if o := p.Lookup("/home/bo/notes").Origin.String(); o != "built-in: other users' files, hidden with preset secrets" {
		t.Errorf("the home of somebody else is hidden by %q", o)
	}
	p = mustResolve(t, workspacePolicy(), Request{Workspace: "/home/cy/project"}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/bo/notes": policy.Read})
}

// F14: homes of people who are in no user database are hidden too, and what is the
// caller's own, everybody's or worked in is not.
func TestHomesOfNobodyKnown(t *testing.T) {
	secret := rule(policy.Hidden, "~/.ssh")
	secret.Optional, secret.Origin = true, policy.Origin{Layer: policy.LayerPreset, Source: "preset secrets"}
	s := machine()
	tree := s.FS.(hostfs.Tree)
	for _, name := range []string{"ldap", "cy", "linuxbrew"} {
		tree["/home/"+name+"/.ssh/id"] = "key"
		tree["/home/"+name+"/notes"] = "text"
	}
	tree["/home/cy/project/x"] = "text"
	p := mustResolve(t, workspacePolicy(secret), Request{}, s)
	wantAccess(t, p, map[string]policy.Access{
		"/home/ldap/notes": policy.Hidden, "/home/linuxbrew/notes": policy.Read, "/home/later/x": policy.Hidden, s.Home + "/notes": policy.Read,
	})
	p = mustResolve(t, workspacePolicy(secret), Request{Workspace: "/home/cy/project"}, s)
	wantAccess(t, p, map[string]policy.Access{
		"/home/ldap/notes": policy.Hidden, "/home/cy/notes": policy.Read, "/home/cy/.ssh/id": policy.Hidden, "/home/cy/project/x": policy.Write,
	})
	p = mustResolve(t, workspacePolicy(secret), Request{Workspace: "/home"}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/ldap/notes": policy.Write})
	p = mustResolve(t, workspacePolicy(), Request{}, s)
	wantAccess(t, p, map[string]policy.Access{"/home/ldap/notes": policy.Read})
}

// F14: opening what a pattern protects is recorded, also for what does not
// exist yet.
func TestLiftedProtectionIsNoted(t *testing.T) {
	s := machine()
	s.FS.(hostfs.Tree)["/home/ana/project/.vscode/settings.json"] = "{}"
	protect := policy.PathRule{Path: "**/.vscode", Access: policy.Read, Protect: true, Optional: true, Origin: policy.Origin{Layer: policy.LayerPreset, Source: "preset sinks"}}
	other := protect
	other.Path = "**/.envrc"
	open := rule(policy.Write, "/home/ana/project/.vscode")
	absent := rule(policy.Write, "/home/ana/project/.envrc")
	absent.Optional = true
	p := mustResolve(t, workspacePolicy(protect, other, open, absent), Request{}, s)
	for _, path := range []string{"/home/ana/project/.vscode", "/home/ana/project/.envrc"} {
		if !slices.ContainsFunc(p.Notices, func(n plan.Notice) bool {
			return n.Kind == plan.NoticeInfo && strings.HasPrefix(n.Text, path+": paths.protect")
		}) {
			t.Errorf("nothing is said of %s: %+v", path, p.Notices)
		}
		if v := judge.NewFiles(p).Path(path); v.Access != policy.Write {
			t.Errorf("%s is not opened: %+v", path, v)
		}
	}
}

// N1: a change in the caller's own home is explained and answered with an option, also
// where the home is shown in a folder of homes that is hidden.
func TestHintInOwnHome(t *testing.T) {
	secret := rule(policy.Hidden, "~/.ssh")
	secret.Optional, secret.Origin = true, policy.Origin{Layer: policy.LayerPreset, Source: "preset secrets"}
	s := machine()
	p := mustResolve(t, workspacePolicy(secret), Request{}, s)
	create := func(file string) plan.Decision {
		d := judge.NewFiles(p).Path(file)
		d.Op, d.Path = plan.OpCreate, file
		judge.Fixer{Plan: p}.Fix(&d)
		return d
	}
	for file, grant := range map[string]string{s.Home + "/notes/x": "--rw " + s.Home + "/notes", "/data/corpus/new": "--rw /data/corpus"} {
		if d := create(file); d.Because() != "not in the writable paths" || runoption.Text(d.Fix...) != grant {
			t.Errorf("%s: %s", file, d.Because())
		}
	}
	d := create(s.Home + "/.toolrc")
	if e, want := d.Narrower, (policy.Edit{Field: "paths.write", Value: s.Home + "/.toolrc"}); e == nil || *e != want {
		t.Errorf("%s: %v, want %v", d.Because(), e, want)
	}
}

// F14: a home that can be listed has the same plan as one in which every path is looked up,
// also where names of the presets exist, differ in case, or are links.
func TestListedHomesGiveTheSamePlan(t *testing.T) {
	names := []string{".config", ".CONFIG", ".local", ".local/share", ".config/gh", ".config/gcloud", ".ssh", ".aws", ".cache", ".config/age", ".local/share/keyrings", "elsewhere/.x"}
	kinds := []string{"dir", "file", "-> /data/corpus", "-> /home/ana/elsewhere", "-> gone", "denied"}
	r := rand.New(rand.NewSource(1))
	for i := range 60 {
		s := machine()
		s.Homes = []string{"/home/ana", "/srv/ana"}[i%2:]
		tree := s.FS.(hostfs.Tree)
		for _, home := range []string{"/home/ana/", "/srv/ana/"} {
			for _, name := range names {
				if r.Intn(3) == 0 {
					tree[home+name] = kinds[r.Intn(len(kinds))]
				}
			}
		}
		if r.Intn(8) == 0 {
			tree["/srv/ana"] = "-> /home/ana"
		}
		plans := make([]string, 2)
		for j, lists := range []bool{false, true} {
			s.FS = &countingFS{Tree: tree, lists: lists}
			p, err := Resolve(policy.Workspace("/home/ana/project"), Request{Workspace: "/home/ana/project"}, s)
			text := fmt.Sprint(err)
			if err == nil {
				b, err := json.Marshal([]any{p, p.AbsentLines()})
				if err != nil {
					t.Fatal(err)
				}
				text = string(b)
			}
			plans[j] = text
		}
		if plans[0] != plans[1] {
			t.Fatalf("%v:\nlooked up %s\nlisted    %s", tree, plans[0], plans[1])
		}
	}
}
