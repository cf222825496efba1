package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestTrustStoreFiles(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "tmp: shared\n")
	data := filepath.Join(s.data, "new", "deep")
	store := OpenTrust(data)
	got, err := store.Trust(s.projectFile)
	if err != nil {
		t.Fatal(err)
	}
	list, err := store.List()
	if err != nil || len(list) != 1 || list[0] != got || got.Path != s.projectFile {
		t.Errorf("got %+v, %v; want %+v", list, err, got)
	}
	if ok, err := store.IsTrusted(s.projectFile, []byte("tmp: shared\n")); !ok || err != nil {
		t.Errorf("the content is not trusted: %v", err)
	}
	if ok, err := store.IsTrusted(s.projectFile, []byte("tmp: shared")); ok || err != nil {
		t.Errorf("other content is trusted: %v", err)
	}
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

// Trust and Untrust of several processes do not undo each other.
func TestTrustConcurrently(t *testing.T) {
	s := newSite(t)
	const n = 8
	var wg sync.WaitGroup
	for i := range n {
		dir := filepath.Join(s.home, fmt.Sprint("p", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, ProjectFileName)
		s.write(file, "tmp: shared\n")
		wg.Go(func() {
			if _, err := OpenTrust(s.data).Trust(file); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := OpenTrust(s.data).List()
	if err != nil || len(list) != n {
		t.Errorf("%d of %d are trusted, %v", len(list), n, err)
	}
}

// A store that cannot be read is an error, never an empty one or a full one.
func TestBrokenTrustStore(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "network: host\n")
	for _, text := range []string{"", "{", `{"version": 2}`, `{"version": 1, "trusted": 5}`} {
		s.write(filepath.Join(s.data, TrustFileName), text)
		if _, err := Load(s.options()); err == nil || !strings.Contains(err.Error(), "trust store") {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := OpenTrust(s.data).Trust(s.projectFile); err == nil {
			t.Errorf("%q is overwritten", text)
		}
	}
}

func TestTrustWithoutDataFolder(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "network: host\n")
	if _, err := OpenTrust("").Trust(s.projectFile); err == nil {
		t.Error("trust is kept nowhere, and that is no error")
	}
	opts := s.options()
	opts.DataDir = ""
	if l := s.load(opts); l.Files[0].Trusted {
		t.Error("without a store a file is trusted")
	}
}

// A project whose folder is gone can still be forgotten.
func TestUntrustGoneProject(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "tmp: shared\n")
	store := OpenTrust(s.data)
	if _, err := store.Trust(s.projectFile); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.work); err != nil {
		t.Fatal(err)
	}
	if found, err := store.Untrust(s.projectFile); !found || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
}
