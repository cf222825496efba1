package secret

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/sessionbus"
	"github.com/cloche-dev/cloche/internal/testbus"
	"github.com/cloche-dev/cloche/policy"
)

// paths is an array of objects.
func paths(m *sessionbus.Message, objects ...string) {
	var list sessionbus.Message
	for _, o := range objects {
		list.Text(o)
		if o != objects[len(objects)-1] {
			list.Align(4)
		}
	}
	m.Number(uint32(len(list)))
	*m = append(*m, list...)
}

// N14: the keyring of the desktop gives the item with the attributes, and says why it gives none.
func TestKeyring(t *testing.T) {
	bus := testbus.Start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
	t.Setenv("XDG_RUNTIME_DIR", bus.Dir)
	from := []policy.Source{source(t, "keyring:service=gh,username=ana")}
	if _, err := reader().Read(t.Context(), "T", from); err == nil || !strings.Contains(err.Error(), "the keyring (service=gh, username=ana) cannot be searched") {
		t.Errorf("without a keyring: %v", err)
	}
	var session, secret sessionbus.Message
	session.Signature("s")
	session.Text("")
	session.Text("/org/freedesktop/secrets/session/1")
	secret.Text("/org/freedesktop/secrets/session/1")
	secret.Number(0)
	secret.Number(uint32(len(value)))
	secret = append(secret, value...)
	secret.Text("text/plain")
	answers := map[string]testbus.Answer{
		"OpenSession": {Signature: "vo", Body: session},
		"GetSecret":   {Signature: "(oayays)", Body: secret},
	}
	const item = "/org/freedesktop/secrets/collection/login/"
	found := func(unlocked, locked []string) {
		var m sessionbus.Message
		paths(&m, unlocked...)
		paths(&m, locked...)
		answers["SearchItems"] = testbus.Answer{Signature: "aoao", Body: m}
	}
	for name, c := range map[string]struct {
		unlocked, locked []string
		want             string
	}{
		"found":  {[]string{item + "1"}, []string{item + "2"}, ""},
		"locked": {nil, []string{item + "1"}, "is locked; unlock it first"},
		"none":   {nil, nil, "has no such item"},
		"two":    {[]string{item + "1", item + "23"}, nil, "has 2 such items; give more attributes"},
	} {
		t.Run(name, func(t *testing.T) {
			bus := testbus.Start(t)
			t.Setenv("DBUS_SESSION_BUS_ADDRESS", bus.Address)
			found(c.unlocked, c.locked)
			keyring := bus.OwnWith(t, keyringName, answers)
			got, err := reader().Read(t.Context(), "T", from)
			if c.want == "" && (err != nil || string(got) != value) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
			if calls := keyring.Calls(); calls[0] != "SearchItems" || c.want == "" && !slices.Equal(calls, []string{"SearchItems", "OpenSession", "GetSecret"}) {
				t.Errorf("calls: %v", calls)
			}
			for _, word := range []string{"service", "gh", "username", "ana"} {
				if !strings.Contains(keyring.Texts()[0], word) {
					t.Errorf("the search has no %q: %q", word, keyring.Texts()[0])
				}
			}
		})
	}
}
