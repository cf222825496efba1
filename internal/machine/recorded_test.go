package machine_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/cause"
	"github.com/cloche-dev/cloche/internal/goldentest"
	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/machine"
)

// Every recorded machine is whole and consistent.
func TestRecordedHosts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/hosts/*.json")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d recorded machines (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := goldentest.ParseRecorded(data)
			if err != nil {
				t.Fatal(err)
			}
			checkRecorded(t, s)
		})
	}
}

func checkRecorded(t *testing.T, s *host.Snapshot) {
	t.Helper()
	tree, ok := s.FS.(hostfs.Tree)
	if !ok || len(tree) < 40 {
		t.Fatalf("a tree of %d entries", len(tree))
	}
	for p := range tree {
		if !path.IsAbs(p) || path.Clean(p) != p {
			t.Errorf("%q is not clean and absolute", p)
		}
		if _, err := tree.Lstat(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	if v, ok := s.Getenv("HOME"); !ok || v != s.Home {
		t.Errorf("HOME is %q, the home folder %q", v, s.Home)
	}
	folders := []string{s.Home + "/.ssh", s.Home + "/.aws", s.Cwd + "/.git", s.Cwd + "/secrets"}
	if s.OS == "linux" {
		folders = append(folders, "/etc", "/tmp")
		checkRecordedLinux(t, s, tree)
	} else if s.Seatbelt.Outcome == host.Unknown {
		t.Errorf("probe %+v", s.Seatbelt)
	}
	for _, p := range folders {
		if info, err := tree.Lstat(p); err != nil || info.Kind != hostfs.Dir {
			t.Errorf("%s is %v (%v), want a folder", p, info.Kind, err)
		}
	}
	for _, p := range s.Sockets {
		if info, err := tree.Lstat(p); err != nil || info.Kind != hostfs.Socket {
			t.Errorf("%s is %v (%v), want a socket", p, info.Kind, err)
		}
	}
}

func checkRecordedLinux(t *testing.T, s *host.Snapshot, tree hostfs.Tree) {
	t.Helper()
	if s.Bwrap.Path != "" {
		if info, err := tree.Lstat(s.Bwrap.Path); err != nil || info.Mode&0o111 == 0 {
			t.Errorf("%s is %+v (%v), want a program", s.Bwrap.Path, info, err)
		}
	}
	if (s.Bwrap.Path == "") != (s.Bwrap.Probe.Cause == cause.Missing) {
		t.Errorf("bwrap at %q: %+v", s.Bwrap.Path, s.Bwrap.Probe)
	}
	for _, p := range []host.Probe{s.Bwrap.Probe, s.Namespaces.User} {
		if p.Outcome == host.Unknown || (p.Outcome == host.No) != (p.Cause != "" && p.Reason != "" && p.Fix != "") {
			t.Errorf("probe %+v", p)
		}
	}
}

// What doctor prints is a recorded machine, short of the tree and the values of
// variables.
func TestSnapshotIsRecorded(t *testing.T) {
	s, err := machine.Collect("")
	if err != nil {
		t.Fatal(err)
	}
	machine.ProbeAll(t.Context(), s)
	s.Sockets, s.Datagrams = nil, nil // a path need not be UTF-8, which is all that JSON holds
	printed, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := goldentest.ParseRecorded(printed)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, printed) {
		t.Errorf("printed %s\nand back %s", printed, again)
	}
	if len(back.Environ) > 0 {
		t.Error("the values of variables were printed")
	}
}

func TestRecordedFillsNames(t *testing.T) {
	s, err := goldentest.ParseRecorded([]byte(`{"os":"linux","env":{"B":"2","A":"1"},"tree":{"/etc":"dir"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(s.EnvNames, ",") != "A,B" || strings.Join(s.Environ, ",") != "A=1,B=2" {
		t.Errorf("names %q, variables %q", s.EnvNames, s.Environ)
	}
	if _, err := goldentest.ParseRecorded([]byte("{")); err == nil {
		t.Error("half a file parsed")
	}
}
