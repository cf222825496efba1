package machine

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/host"
)

func needSlashPaths(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the paths of this test are those of Unix")
	}
}

func TestIdentify(t *testing.T) {
	needSlashPaths(t)
	known := func() (string, error) { return "ana:x:7:7::/home/ana:/bin/sh\n", nil }
	unknown := func() (string, error) { return "bo:x:8:8::/home/bo:/bin/sh\n", nil }
	mustNot := func() (string, error) {
		t.Error("the user database was read without need")
		return "", nil
	}
	tests := []struct {
		name    string
		env     map[string]string
		users   func() (string, error)
		want    identity
		wantErr string
	}{
		{"environment", map[string]string{"USER": "bo", "HOME": "/h/bo"}, mustNot, identity{"bo", "/h/bo"}, ""},
		{"logname, home not clean", map[string]string{"LOGNAME": "bo", "HOME": "/h//bo/"}, mustNot, identity{"bo", "/h/bo"}, ""},
		{"no home", map[string]string{"USER": "bo"}, known, identity{"bo", "/home/ana"}, ""},
		{"relative home", map[string]string{"USER": "bo", "HOME": "home"}, known, identity{"bo", "/home/ana"}, ""},
		{"no user", map[string]string{"HOME": "/h"}, known, identity{"ana", "/h"}, ""},
		{"no user anywhere", map[string]string{"HOME": "/h"}, unknown, identity{"7", "/h"}, ""},
		{"nothing", nil, unknown, identity{}, "set HOME"},
		{"no database", nil, func() (string, error) { return "", errors.New("no file") }, identity{}, "no file"},
		{"relative everywhere", nil, func() (string, error) { return "x:x:7:7::x:/bin/sh\n", nil }, identity{}, `"x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := identify(fakeEnv(tt.env), 7, tt.users)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestScanPasswd(t *testing.T) {
	text := "root:x:0:0:root:/root:/bin/sh\nshort:x:7\nbo:x:17:7::/h/bo:/bin/sh\nana:x:7:7:Ana,,,:/h/ana:/bin/sh\nlater:x:7:7::/no:/bin/sh\n"
	got, err := scanPasswd(text, 7)
	if want := (identity{"ana", "/h/ana"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := scanPasswd(text, 8); err == nil || !strings.Contains(err.Error(), "uid 8") {
		t.Errorf("error %v", err)
	}
}

func TestDirs(t *testing.T) {
	needSlashPaths(t)
	got := dirsFor("/h", fakeEnv(map[string]string{"XDG_CONFIG_HOME": "/c/", "XDG_DATA_HOME": "relative", "XDG_STATE_HOME": ""}))
	want := host.Dirs{Config: "/c/cloche", Data: "/h/.local/share/cloche", State: "/h/.local/state/cloche", Cache: "/h/.cache/cloche"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEnvNames(t *testing.T) {
	var s host.Snapshot
	s.SetEnviron([]string{"B=2", "A=1=x", "B=3", "junk", "=C:=x"})
	if want := []string{"A", "B"}; !slices.Equal(s.EnvNames, want) {
		t.Errorf("got %q, want %q", s.EnvNames, want)
	}
}

func TestCollect(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USER", "ana")
	t.Setenv("SECRET", "x")
	s, err := Collect("")
	if err != nil {
		t.Fatal(err)
	}
	if s.OS != runtime.GOOS || s.Arch != runtime.GOARCH || s.Home != home || s.User != "ana" || s.FS == nil {
		t.Errorf("got %+v", s)
	}
	if !slices.Contains(s.EnvNames, "SECRET") {
		t.Errorf("names %q", s.EnvNames)
	}
	if real, err := filepath.EvalSymlinks(s.Cwd); err != nil || real != s.Cwd {
		t.Errorf("the working folder %q has links (%v)", s.Cwd, err)
	}
	if s.Bwrap.Probe.Outcome != host.Unknown || s.Namespaces.User.Outcome != host.Unknown {
		t.Error("collecting has probed")
	}
	if SetBwrap(s, "bin/bwrap") == nil {
		t.Error("a relative path of bwrap was taken")
	}
}

func BenchmarkCollect(b *testing.B) {
	for b.Loop() {
		if _, err := Collect(""); err != nil {
			b.Fatal(err)
		}
	}
}
