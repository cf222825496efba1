package apitest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A7: what is granted only adds: to read takes no writing away, whichever was granted
// first, and what a rule or a pattern hides is given as far as it was granted.
func TestGrantsAddUp(t *testing.T) {
	testenv.AlsoAsUser(t)
	top := t.TempDir()
	work := filepath.Join(top, "work")
	for _, name := range []string{"work/sub/f", "work/key.pem", "beside/f", "beside/secret", "beside/other", "beside/$HOME"} {
		file := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct{ grants, written, read, hidden []string }{
		"nothing":                 {written: []string{"work/sub/f"}, hidden: []string{"beside/f", "work/key.pem"}},
		"read, then write":        {grants: []string{"read beside", "write beside"}, written: []string{"beside/f"}, hidden: []string{"beside/secret"}},
		"write, then read":        {grants: []string{"write beside", "read beside"}, written: []string{"beside/f"}},
		"a file, then its folder": {grants: []string{"read beside/f", "write beside"}, written: []string{"beside/f", "beside/other"}},
		"of what can be written":  {grants: []string{"read work/sub"}, written: []string{"work/sub/f"}},
		"of what a pattern hides": {grants: []string{"read work/key.pem"}, read: []string{"work/key.pem"}},
		"of what a rule hides":    {grants: []string{"write beside", "read beside/secret"}, written: []string{"beside/f"}, read: []string{"beside/secret"}},
		"of a name with a dollar": {grants: []string{"write beside/$HOME"}, written: []string{"beside/$HOME"}, hidden: []string{"beside/f"}},
		"of a file, to read":      {grants: []string{"read beside/f"}, read: []string{"beside/f"}, hidden: []string{"beside/other"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := cloche.Open(t.Context(), policy.Workspace(work).With(policy.HidePaths(top+"/beside/secret", "**/*.pem")))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, g := range test.grants {
				access, name, _ := strings.Cut(g, " ")
				if err := s.Grant(t.Context(), grant.Grant{Access: grant.Access(access), Path: filepath.Join(top, name)}); err != nil {
					t.Fatal(err)
				}
			}
			for access, names := range map[policy.Access][]string{policy.Write: test.written, policy.Read: test.read, policy.Hidden: test.hidden} {
				for _, name := range names {
					if got := accessInside(t, s, filepath.Join(top, name)); got != access {
						t.Errorf("%s: %s, want %s", name, got, access)
					}
				}
			}
		})
	}
}

// A7: a rule of a file that is not trusted yields to what a person granted who was shown
// of it, in the session and when it is kept, and to nothing else.
func TestGrantsAgainstUntrusted(t *testing.T) {
	testenv.AlsoAsUser(t)
	top := workspace(t)
	for _, name := range []string{"work/protected/f", "work/protected/g", "work/hidden/f", "work/hidden/g", "work/f"} {
		writeFile(t, filepath.Join(top, name), "x")
	}
	work := filepath.Join(top, "work")
	untrusted := func(p *policy.Policy) {
		o := policy.Origin{Layer: policy.LayerProject, Untrusted: true}
		p.Paths = append(p.Paths, policy.PathRule{Path: work + "/hidden", Access: policy.Hidden, Origin: o},
			policy.PathRule{Path: work + "/protected", Access: policy.Read, Protect: true, Origin: o})
	}
	grants := []grant.Grant{{ID: "1", Access: grant.Write, Path: work + "/protected/f"}, {ID: "2", Access: grant.Read, Path: work + "/hidden"}}
	p := policy.Workspace(work).With(untrusted)
	for how, p := range map[string]policy.Policy{"granted": p.With(grants[0].Option(), grants[1].Option()), "kept": p.With(grants[0].Kept(), grants[1].Kept())} {
		s := open(t, p, work)
		for name, want := range map[string]policy.Access{"protected/f": policy.Write, "protected/g": policy.Read, "hidden/f": policy.Read, "f": policy.Write} {
			if got := accessInside(t, s, work+"/"+name); got != want {
				t.Errorf("%s: %s is %s, want %s", how, name, got, want)
			}
		}
	}
}

// accessInside is what a command of the session can do with a file, by trying it, and
// what Check says of it.
func accessInside(t *testing.T, s *cloche.Session, file string) policy.Access {
	t.Helper()
	access := policy.Hidden
	if s.Command(t.Context(), "cat", file).Run() == nil {
		access = policy.Read
		if s.Command(t.Context(), "sh", "-c", `printf x >> "$0"`, file).Run() == nil {
			access = policy.Write
		}
	}
	for action, need := range map[plan.Op]policy.Access{plan.OpRead: policy.Read, plan.OpWrite: policy.Write} {
		if d, err := s.Check(action, strings.ReplaceAll(file, "$", "$$")); err != nil || d.Allowed != (access >= need) {
			t.Errorf("%s %s: %+v, %v, and it is %s", action, file, d, err, access)
		}
	}
	return access
}

// A7 F4: what was granted is the file of that name. A name that looks like a form of
// a policy, and a link that is put there later, open nothing else, whether it was
// granted now or is kept from before.
func TestGrantsAreNames(t *testing.T) {
	testenv.AlsoAsUser(t)
	top := t.TempDir()
	work, victim := filepath.Join(top, "work"), filepath.Join(top, "victim")
	writeFile(t, work+"/f", "x")
	writeFile(t, victim+"/f", "x")
	for _, name := range []string{"${X:-..}/victim", "$HOME", "${", "a$X", "{a,b}", "**", "?x", "cwd"} {
		folder := filepath.Join(top, "pub", name)
		writeFile(t, folder+"/f", "x")
		g := grant.Grant{ID: "abc123", Access: grant.Write, Path: folder, Scope: grant.Always}
		for how, option := range map[string]policy.Option{"granted": g.Option(), "kept": g.Kept()} {
			s := open(t, policy.Workspace(work).With(option), work)
			script := `printf y >>"$0/f"; cat ` + victim + `/f && printf y >>` + victim + `/f`
			if err := s.Command(t.Context(), "sh", "-c", script, folder).Run(); err == nil {
				t.Errorf("%s, %s: the other folder is open", name, how)
			}
		}
		if got := read(t, folder+"/f"); got != "xyy" {
			t.Errorf("%s: what was granted has %q", name, got)
		}
	}
	link := filepath.Join(top, "pub", "link")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	g := grant.Grant{ID: "abc123", Access: grant.Write, Path: link, Scope: grant.Always}
	for how, option := range map[string]policy.Option{"granted": g.Option(), "kept": g.Kept()} {
		s := open(t, policy.Workspace(work).With(option), work)
		if got := accessInside(t, s, victim+"/f"); got != policy.Hidden {
			t.Errorf("%s: through a link that was put there later it is %s", how, got)
		}
	}
}

// A7: what a grant of a folder does not open is said beforehand, to the person who decides, and
// in the results of the commands that have it.
func TestGrantSaysWhatStaysClosed(t *testing.T) {
	testenv.AlsoAsUser(t)
	top := t.TempDir()
	work, dir := filepath.Join(top, "work"), filepath.Join(top, "gh")
	for _, name := range []string{"work/f", "gh/config.yml", "gh/hosts.yml", "gh/keys/a", "gh/sub/lock"} {
		file := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := policy.Workspace(work).With(policy.HidePaths(dir+"/hosts.yml", dir+"/keys"), policy.ProtectPaths(dir+"/sub/lock"))
	asked := make(chan grant.Request, 1)
	s, err := cloche.Open(t.Context(), p, cloche.WithAsk(grant.Options{Approvers: []grant.Approver{approverFunc(func(d *grant.Desk, r grant.Request) {
		asked <- r
		if _, err := d.Decide(r.ID, grant.Decision{}); err != nil {
			t.Error(err)
		}
	})}}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	words := func(kept []grant.Kept) (out string) {
		for _, k := range kept {
			out += strings.TrimPrefix(k.Path, dir) + " " + k.Access.String() + ";"
		}
		return out
	}
	for access, want := range map[grant.Access]string{grant.Read: "/hosts.yml hidden;/keys hidden;", grant.Write: "/hosts.yml hidden;/keys hidden;/sub/lock read;"} {
		g := grant.Grant{Path: dir, Access: access}
		kept, err := s.StaysClosed(t.Context(), g)
		if err != nil || words(kept) != want {
			t.Errorf("%s: %s (%v), want %s", access, words(kept), err, want)
		}
		_, _ = s.Desk().Ask(t.Context(), grant.Request{Path: dir, Access: access})
		if r := <-asked; words(r.Keeps) != want {
			t.Errorf("%s: the question says %s, want %s", access, words(r.Keeps), want)
		}
	}
	if kept, err := s.StaysClosed(t.Context(), grant.Grant{Path: dir + "/hosts.yml", Access: grant.Read}); err != nil || len(kept) > 0 {
		t.Errorf("the file itself: %v (%v)", kept, err)
	}
	if err := s.Grant(t.Context(), grant.Grant{Path: dir, Access: grant.Write}); err != nil {
		t.Fatal(err)
	}
	result, err := s.Command(t.Context(), "cat", dir+"/hosts.yml").Capture()
	if err != nil || result.ExitCode == 0 {
		t.Fatalf("the file is shown, or nothing ran: %+v, %v", result, err)
	}
	told := slices.ContainsFunc(result.Notices, func(n plan.Notice) bool {
		return strings.Contains(n.Text, "does not open "+dir+"/hosts.yml (hidden, ")
	})
	if !told {
		t.Errorf("no notice says what the grant does not open: %v", result.Notices)
	}
}

type approverFunc func(*grant.Desk, grant.Request)

func (f approverFunc) Asked(d *grant.Desk, r grant.Request) { f(d, r) }
func (approverFunc) Withdrawn(grant.Request)                {}
