package toggle

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

func key(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return "1 2 3"
	}
	k, err := CurrentSession()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func at(session, project string) func() (string, string) {
	return func() (string, string) { return session, project }
}

// F8: the session's switch is stronger than the project's, and each holds for
// its own alone.
func TestFor(t *testing.T) {
	s, session := Open(t.TempDir()), key(t)
	made := time.Now().UTC().Truncate(time.Second)
	for _, sw := range []Switch{
		{Scope: Project, Key: "/w", Off: true, By: "ana", Made: made},
		{Scope: Terminal, Key: session, Off: false, Made: made},
	} {
		if err := s.Set(sw); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		session, project string
		want             string
	}{
		{session, "/w", "cloche enable --terminal"},
		{"", "/w", "cloche disable --project by ana"},
		{"other", "/w", "cloche disable --project by ana"},
		{"other", "/w2", ""},
		{"", "", ""},
	} {
		got, err := s.For(at(c.session, c.project))
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			if c.want != "" {
				t.Errorf("%+v: nothing", c)
			}
			continue
		}
		if o := got.Origin().Source; c.want == "" || !strings.HasPrefix(o, c.want) {
			t.Errorf("%+v: %s", c, o)
		}
	}
	if err := s.Clear(Project, "/w"); err != nil {
		t.Error(err)
	}
	if got, err := s.For(at("", "/w")); err != nil || got != nil {
		t.Errorf("after that: %v, %v", got, err)
	}
}

// F8: what was switched for a session ends with it, also if its number is used
// again.
func TestSessionsEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("sessions can be distinguished on Linux only")
	}
	s, session := Open(t.TempDir()), key(t)
	leader, rest, _ := strings.Cut(session, " ")
	_, boot, _ := strings.Cut(rest, " ")
	for _, old := range []string{leader + " 1 " + boot, "999999999 1 " + boot, session + "x"} {
		if err := s.Set(Switch{Scope: Terminal, Key: old, Off: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.For(at(session, "")); err != nil || got != nil {
		t.Errorf("another session's switch holds: %v, %v", got, err)
	}
	if err := s.Set(Switch{Scope: Terminal, Key: session, Off: true}); err != nil {
		t.Fatal(err)
	}
	list, err := s.list.Read()
	if err != nil || len(list) != 1 {
		t.Errorf("%d switches are kept, %v", len(list), err)
	}
}

func TestOption(t *testing.T) {
	sw := Switch{Scope: Project, Key: "/w", Off: true, Made: time.Now()}
	p := policy.Policy{}.With(sw.Option())
	if !p.Disabled || p.DisabledOrigin.Layer != policy.LayerSession {
		t.Errorf("%+v", p.DisabledOrigin)
	}
	sw.Off = false
	if p = p.With(sw.Option()); p.Disabled {
		t.Error("still disabled")
	}
}

// A damaged file stops, so that nothing runs unconfined or confined by accident.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir).For(at("", "/w")); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("%v", err)
	}
	if err := Open(dir).Set(Switch{Scope: Project}); err == nil {
		t.Error("a switch for nothing was taken")
	}
}
