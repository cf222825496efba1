//go:build unix

package desktop

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testbus"
	"github.com/cloche-dev/cloche/internal/testenv"
)

func request(id string) grant.Request {
	return grant.Request{ID: id, Access: grant.Write, Path: "/evil/<b>path</b>", Reason: "evil reason", Command: []string{"evil"}, Expires: time.Now().Add(time.Minute)}
}

// L4: while requests wait, the desktop shows one notification of cloche's own words, also on a
// bus that only XDG_RUNTIME_DIR names. It is removed when none waits, or when cloche ends.
func TestNotification(t *testing.T) {
	bus := testbus.Start(t)
	for name, address := range map[string]string{"variable": bus.Address, "usual place": ""} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
			t.Setenv("XDG_RUNTIME_DIR", bus.Dir)
			desktop := bus.Own(t, Name)
			called := func(want ...string) {
				t.Helper()
				testenv.Eventually(t, strings.Join(want, ", "), func() bool { return slices.Equal(desktop.Calls(), want) })
			}
			n := New()
			n.Asked(nil, request("a"))
			n.Asked(nil, request("b"))
			called("Notify")
			if text := desktop.Texts()[0]; !strings.Contains(text, "cloche approve") || strings.Contains(text, "evil") {
				t.Errorf("the notification is %q", text)
			}
			n.Withdrawn(request("a"))
			n.Withdrawn(request("other"))
			n.Withdrawn(request("b"))
			called("Notify", "CloseNotification")

			again := New()
			again.Asked(nil, request("c"))
			called("Notify", "CloseNotification", "Notify")
			again.Close()
			called("Notify", "CloseNotification", "Notify", "CloseNotification")
			n.Close()
		})
	}
}

// L4: without a bus, without anybody on it who shows notifications, and with a bus that never
// answers, a request waits as usual.
func TestNoNotification(t *testing.T) {
	bus := testbus.Start(t)
	mute := filepath.Join(bus.Dir, "mute")
	l, err := net.Listen("unix", mute)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, address := range map[string]string{
		"no bus": "unix:path=" + bus.Dir + "/none", "no name": bus.Address, "mute": "unix:path=" + mute, "not a socket": "unixexec:path=/bin/false",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
			n := New()
			desk := grant.NewDesk(grant.Options{Approvers: []grant.Approver{n, allower{}}})
			if _, err := desk.Ask(t.Context(), request("")); err != nil {
				t.Error(err)
			}
			n.Close()
		})
	}
	var none Notifier
	none.Asked(nil, request("a"))
	none.Withdrawn(request("a"))
	none.Close()
}

// allower allows everything at once.
type allower struct{}

func (allower) Asked(d *grant.Desk, r grant.Request) {
	_, _ = d.Decide(r.ID, grant.Decision{Allow: true})
}
func (allower) Withdrawn(grant.Request) {}
