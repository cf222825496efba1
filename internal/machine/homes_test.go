package machine

import (
	"os"
	"path"
	"slices"
	"testing"
)

// F14: root's commands do not read the secrets of others, and nobody's are open
// because HOME points elsewhere.
func TestOtherHomes(t *testing.T) {
	const db = "root:x:0:0::/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/x\npg:x:26:26::/var/lib/pgsql:/x\nana:x:1000:1000::/home/ana:/x\nbo:x:1001:1001::/home/bo/:/x\nodd:x:1002:1002::relative:/x\nnobody:x:65534:65534::/:/x\n"
	for _, tt := range []struct {
		uid           int
		own           string
		homes, others []string
	}{
		{0, "/root", nil, []string{"/home/ana", "/home/bo", "/var/lib/pgsql"}},
		{0, "/home/ana", []string{"/root"}, []string{"/home/bo", "/var/lib/pgsql"}},
		{1000, "/home/ana", nil, []string{"/home/bo", "/root"}},
		{1000, "/tmp/fake", []string{"/home/ana"}, []string{"/home/bo", "/root"}},
		{4711, "/home/x", nil, []string{"/home/ana", "/home/bo", "/root"}},
	} {
		homes, others := scanHomes(db, tt.uid, tt.own)
		if !slices.Equal(homes, tt.homes) || !slices.Equal(others, tt.others) {
			t.Errorf("uid %d at %s: %q and %q, want %q and %q", tt.uid, tt.own, homes, others, tt.homes, tt.others)
		}
	}
}

// C5 F14: on macOS the home folders of others are the entries of /Users.
func TestPeopleHomes(t *testing.T) {
	users := t.TempDir()
	for _, name := range []string{".localized", "Shared", "ana", "bea", "Guest"} {
		if err := os.Mkdir(path.Join(users, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got := peopleHomes(users, path.Join(users, "ana"))
	if want := []string{path.Join(users, "Guest"), path.Join(users, "bea")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
