package grant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/safeopen"
)

// A7: what is granted always is on the disk before the asker hears of it.
func TestAlwaysIsPersistedFirst(t *testing.T) {
	dir := t.TempDir()
	store := OpenStore(dir)
	d := NewDesk(Options{Store: store, Approvers: []Approver{decides(t, Decision{Allow: true, Scope: Always, By: "ana", Note: "fine"})}})
	defer d.Close()
	g, err := d.Ask(context.Background(), Request{Path: "/data", Access: Read, Reason: "the corpus", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := OpenStore(dir).For("/w")
	if err != nil || len(list) != 1 || list[0] != *g || list[0].By != "ana" || list[0].Reason != "the corpus" || list[0].Note != "fine" {
		t.Errorf("%+v, %v; want %+v", list, err, g)
	}
	if info, err := os.Stat(store.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want owner only", info.Mode(), err)
	}
	if other, err := store.For("/w2"); err != nil || len(other) != 0 {
		t.Errorf("another workspace has %v, %v", other, err)
	}
	if revoked, err := store.Revoke(g.ID); err != nil || revoked == nil || *revoked != *g {
		t.Errorf("revoke: %v, %v", revoked, err)
	}
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Errorf("after that: %v, %v", list, err)
	}
	if revoked, err := store.Revoke(g.ID); err != nil || revoked != nil {
		t.Errorf("twice: %v, %v", revoked, err)
	}
}

// A7: a store that cannot be written leaves the request waiting.
func TestNothingIsGivenThatCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewDesk(Options{Timeout: time.Minute, Store: OpenStore(filepath.Join(file, "data"))})
	r := wait(t, d, Request{Path: "/a", Access: Read})
	if _, err := d.Decide(r.ID, Decision{Allow: true, Scope: Always}); err == nil {
		t.Error("it was given")
	}
	if len(d.Pending()) != 1 {
		t.Error("the request does not wait any more")
	}
}

// A7: a grant for a time ends.
func TestTimed(t *testing.T) {
	store := OpenStore(t.TempDir())
	past := Grant{ID: "old", Path: "/a", Access: Read, Scope: Timed, Expires: time.Now().Add(-time.Second), Made: time.Now()}
	if err := store.Add(past); err != nil {
		t.Fatal(err)
	}
	d := NewDesk(Options{Store: store, Approvers: []Approver{decides(t, Decision{Allow: true, Scope: Timed, For: time.Hour})}})
	defer d.Close()
	if _, err := d.Ask(context.Background(), Request{Path: "/b", Access: Read}); err != nil {
		t.Fatal(err)
	}
	list, err := store.List()
	if err != nil || len(list) != 1 || list[0].Path != "/b" || time.Until(list[0].Expires) < 50*time.Minute {
		t.Errorf("%+v, %v", list, err)
	}
}

// A time that is shorter than a second is one, too.
func TestShortTime(t *testing.T) {
	now := time.Now()
	g, err := apply(&Request{Path: "/a", Access: Read}, Decision{Allow: true, Scope: Timed, For: 300 * time.Millisecond}, safeopen.RealPath, now)
	if err != nil || !g.Live(now.Add(299*time.Millisecond)) || g.Live(now.Add(300*time.Millisecond)) {
		t.Errorf("%+v, %v", g, err)
	}
}

// A damaged store is an error that says so, and is not overwritten.
func TestDamagedStore(t *testing.T) {
	for _, text := range []string{"", "{", `{"version": 9, "grants": []}`, `{"grants": []}`, `{"version": 1, "grants": 3}`} {
		dir := t.TempDir()
		file := filepath.Join(dir, fileName)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		store := OpenStore(dir)
		if _, err := store.List(); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%q: %v", text, err)
		}
		if err := store.Add(Grant{ID: "x", Path: "/a", Access: Read, Scope: Always}); err == nil {
			t.Errorf("%q: it was overwritten", text)
		}
	}
}

// Several processes add at once, and nothing is lost.
func TestConcurrentAdds(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	errs := make(chan error, 20)
	for i := range 20 {
		all.Go(func() {
			errs <- OpenStore(dir).Add(Grant{ID: fmt.Sprint(i), Path: fmt.Sprint("/a", i), Access: Read, Scope: Always})
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if list, err := OpenStore(dir).List(); err != nil || len(list) != 20 {
		t.Errorf("%d of 20, %v", len(list), err)
	}
	if err := OpenStore(dir).Add(Grant{ID: "3", Path: "/b", Access: Read, Scope: Always}); err == nil {
		t.Error("an id was given twice")
	}
	if err := OpenStore("").Add(Grant{ID: "3"}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("no data folder: %v", err)
	}
}

// What is given twice is in the store once, unless the older one holds longer.
func TestSameGrantIsKeptOnce(t *testing.T) {
	hour := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Hour) }
	store := OpenStore(t.TempDir())
	for _, g := range []Grant{
		{ID: "1", Path: "/a", Access: Read, Scope: Always}, {ID: "2", Path: "/a", Access: Read, Scope: Always},
		{ID: "3", Path: "/a", Access: Write, Scope: Always}, {ID: "4", Path: "/a", Access: Read, Scope: Always, Workspace: "/w"},
		{ID: "5", Path: "/b", Access: Read, Scope: Timed, Expires: hour(1)}, {ID: "6", Path: "/b", Access: Read, Scope: Timed, Expires: hour(2)},
		{ID: "7", Path: "/b", Access: Read, Scope: Timed, Expires: hour(1)},
		{ID: "8", Host: "h", Access: Connect, Scope: Timed, Expires: hour(1)}, {ID: "9", Host: "h", Access: Connect, Scope: Always},
	} {
		if err := store.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	list, err := store.List()
	ids := ""
	for _, g := range list {
		ids += g.ID
	}
	if ids != "234679" || err != nil {
		t.Errorf("there are %s, %v", ids, err)
	}
}
