//go:build unix

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/ownfile"
	"github.com/cloche-dev/cloche/policy"
)

// F7: a file that others can change is never trusted, and that is said.
func TestExposedProjectFile(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "network: host\n")
	store := OpenTrust(s.data)
	if _, err := store.Trust(s.projectFile); err != nil {
		t.Fatal(err)
	}
	expose(t, s.projectFile)
	l := s.load(s.options())
	if l.Policy.Network.Mode != policy.NetworkNone || l.Files[0].Trusted || !strings.Contains(l.Files[0].Why, "everyone may write it") {
		t.Errorf("got network %s, file %+v", l.Policy.Network.Mode, l.Files[0])
	}
	var exposed *ownfile.ExposedError
	if _, err := store.Trust(s.projectFile); !errors.As(err, &exposed) {
		t.Errorf("got %v", err)
	}
}

func expose(t *testing.T, path string) {
	t.Helper()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestExposedUserFile(t *testing.T) {
	s := newSite(t)
	s.write(s.userFile, "network: host\npaths: {hide: [/x]}\n")
	expose(t, s.userFile)
	l := s.load(s.options())
	if l.Policy.Network.Mode != policy.NetworkNone || !has(l.Policy, "/x", policy.Hidden) || l.Files[0].Why == "" {
		t.Errorf("got network %s, file %+v", l.Policy.Network.Mode, l.Files[0])
	}
}

// As root: files of another user may only tighten, and nothing fails.
func TestForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	s := newSite(t)
	s.write(s.userFile, "network: host\n")
	s.write(s.projectFile, "network: host\n")
	store := OpenTrust(s.data)
	if _, err := store.Trust(s.projectFile); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{s.userFile, s.projectFile} {
		if err := os.Chown(f, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	l := s.load(s.options())
	if l.Policy.Network.Mode != policy.NetworkNone || len(l.Ignored) != 2 {
		t.Errorf("got network %s, ignored %v", l.Policy.Network.Mode, l.Ignored)
	}
	for _, f := range l.Files {
		if f.Trusted || !strings.Contains(f.Why, "uid 12345") {
			t.Errorf("got %+v", f)
		}
	}
}

func TestExposedTrustStore(t *testing.T) {
	s := newSite(t)
	s.write(s.projectFile, "network: host\n")
	store := OpenTrust(s.data)
	if _, err := store.Trust(s.projectFile); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.data, TrustFileName)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the store has the mode %o", info.Mode().Perm())
	}
	expose(t, path)
	var exposed *ownfile.ExposedError
	if _, err := Load(s.options()); !errors.As(err, &exposed) {
		t.Errorf("got %v", err)
	}
}

// A FIFO in the place of a file is an error and not a wait without end.
func TestFIFO(t *testing.T) {
	s := newSite(t)
	if err := syscall.Mkfifo(s.projectFile, 0o644); err != nil {
		t.Skip("no FIFOs here:", err)
	}
	if _, err := Load(s.options()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}
