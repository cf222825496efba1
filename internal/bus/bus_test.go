//go:build unix

package bus

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/plan"
)

// A9: every rule becomes one option, behind the filter.
func TestArguments(t *testing.T) {
	b := &plan.Bus{Address: "unix:path=/run/bus", Rules: []plan.BusRule{
		{Access: "see", Name: "org.a.*"}, {Access: "talk", Name: "org.a.B"}, {Access: "own", Name: "org.c.D"},
		{Access: "call", Name: "org.e.F", Rule: "org.e.F.M@/e"}, {Access: "broadcast", Name: "org.e.F", Rule: "*"},
	}}
	want := []string{"xdg-dbus-proxy", "--fd=3", "unix:path=/run/bus", "/s", "--filter", "--see=org.a.*", "--talk=org.a.B", "--own=org.c.D",
		"--call=org.e.F=org.e.F.M@/e", "--broadcast=org.e.F=*"}
	if got := arguments(b, "/s", 3); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A9: the folder of the socket is the user's alone, and lies where nobody else
// could replace it.
func TestReserve(t *testing.T) {
	loose, long, good := t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("x", 90)), short(t)
	if err := os.Chmod(loose, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(short(t), "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	p, err := Reserve("/nowhere", loose, long, link)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dir := filepath.Dir(p.Socket())
	if filepath.Dir(dir) != good {
		t.Errorf("the socket is %s, want one in %s", p.Socket(), good)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	var wrong *Error
	if _, err := Reserve("/nowhere", loose, long); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "set XDG_RUNTIME_DIR") {
		t.Errorf("the error is %v", err)
	}
	for _, dir := range []string{loose, long} {
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}

// short makes a folder with a short name: see maxSocketPath.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A9: what a process that was killed left behind is removed, and nothing else.
func TestSweep(t *testing.T) {
	dir := short(t)
	age := func(p string) {
		t.Helper()
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
	abandoned, fresh, other := filepath.Join(dir, folderPrefix+"1"), filepath.Join(dir, folderPrefix+"2"), filepath.Join(dir, "other")
	for _, p := range []string{abandoned, fresh, other} {
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(abandoned, socketName))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	used, err := Reserve(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for _, p := range []string{abandoned, other, filepath.Dir(used.Socket())} {
		age(p)
	}
	sweep(dir)
	for p, want := range map[string]bool{abandoned: false, fresh: true, other: true, filepath.Dir(used.Socket()): true} {
		if _, err := os.Stat(p); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", p, err == nil, want)
		}
	}
}

// A9: a proxy that does not start is an error with what it said, and leaves
// nothing.
func TestProxyFails(t *testing.T) {
	dir := short(t)
	script := func(text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "proxy")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	canceled, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, c := range []struct {
		name, program, want string
		ctx                 context.Context
	}{
		{"missing", "/nowhere/proxy", "no such file", t.Context()},
		{"ends", script("echo no bus >&2; exit 1"), "it ended at once: no bus", t.Context()},
		{"lies", script("echo x >&3; exec sleep 60"), "no such file", t.Context()},
		{"hangs", script("exec sleep 60"), "context deadline exceeded", canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Reserve(dir)
			if err != nil {
				t.Fatal(err)
			}
			err = p.Start(c.ctx, c.program, &plan.Bus{Address: "unix:path=/nowhere"})
			var wrong *Error
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			p.Close()
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	var none *Proxy
	none.Unlink()
	none.Close()
	none.EndWith(nil)
	if none.Socket() != "" || none.Alive() {
		t.Error("no proxy is one")
	}
}
