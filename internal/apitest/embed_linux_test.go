package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// A policy for a folder is enough to work there: the program may stand elsewhere. F3
func TestPolicyNamesTheWorkspace(t *testing.T) {
	testenv.Need(t, "userns")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := cloche.Command(t.Context(), policy.Workspace(dir), "sh", "-c", "pwd; echo made > here").Capture()
	if err != nil || !r.Success() || strings.TrimSpace(string(r.Stdout)) != dir {
		t.Fatalf("%v %+v %s", err, r, r.Stdout)
	}
	if _, err := os.Stat(filepath.Join(dir, "here")); err != nil {
		t.Error(err)
	}
	other := t.TempDir()
	s, err := cloche.Open(t.Context(), policy.Workspace(dir).With(policy.AllowRead(other)), cloche.WithWorkspace(other))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := explained(s).Workspace; got != other {
		t.Errorf("the workspace is %s, and the session was given %s", got, other)
	}
	if p := policy.Workspace("~/project"); p.Workspace != "" {
		t.Errorf("%q is not for the operating system", p.Workspace)
	}
}

// A program that embeds the library runs itself inside as a helper, although it lies in a
// folder that is hidden: by a rule in the words of a policy, which shows it read-only. F4
func TestOwnProgramInside(t *testing.T) {
	testenv.Need(t, "userns", "bwrap", "landlock")
	testenv.AlsoAsUser(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	beside := self + ".beside"
	if err := os.WriteFile(beside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(beside)
	for _, backend := range []string{"native", "bwrap"} {
		p := policy.Workspace(dir).With(policy.HidePaths(filepath.Dir(self)), policy.WithBackend(backend))
		helper := "'" + self + "' -test.run '^$' >&2"
		if r, err := cloche.Command(t.Context(), p, "sh", "-c", helper).Capture(); err == nil && r.Success() {
			t.Errorf("%s: it can be run without a rule", backend)
		}
		p = p.With(policy.AllowRead("urn:cloche:self"))
		r, err := cloche.Command(t.Context(), p, "sh", "-c", helper+" && ! [ -e '"+beside+"' ] && ! (: >> '"+self+"')").Capture()
		if err != nil || !r.Success() {
			t.Errorf("%s: %v, %s", backend, err, r.Stderr)
		}
	}
}

// A grant that would give nothing is an error, and leaves no trace. A7
func TestGrantOfNothing(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	s, err := cloche.Open(t.Context(), policy.Workspace(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for want, g := range map[string]grant.Grant{
		`the access "" of a grant is not known; write read, write or connect`: {Path: "/etc"},
		`a grant of "", which is not an absolute path`:                        {Access: grant.Read},
		`a grant of "x", which is not an absolute path`:                       {Access: grant.Write, Path: "x"},
		`which leads to "/etc"; grant that path`:                              {Access: grant.Write, Path: link},
		`a grant of a connection: the host is empty`:                          {Access: grant.Connect},
		`"localhost" is the host's loopback, which no rule for hosts opens`:   {Access: grant.Connect, Host: "localhost:80"},
		`the grant of /etc has expired`:                                       {Access: grant.Read, Path: "/etc", Expires: time.Now().Add(-time.Second)},
	} {
		if err := s.Grant(t.Context(), g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", g, err, want)
		}
	}
	if list := s.Grants(); len(list) != 0 {
		t.Errorf("granted: %v", list)
	}
}
