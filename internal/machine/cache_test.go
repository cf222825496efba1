package machine

import (
	"os"
	"strings"
	"testing"
)

// F2: a remembered probe is found in the file by its whole key, and only by that.
func TestKeyIsInFile(t *testing.T) {
	key := probeKey{Boot: "7d52", Kernel: "6.18.0-x", UID: 1000, UserNS: "user:[1]", MountNS: "mnt:[2]", MaxUser: 9, UnprivilegedClone: -1, AppArmorRestrict: -1}
	native := key
	native.Program = "native"
	file := func(keys ...probeKey) string {
		c := NewProbeCache(t.TempDir())
		var entries []cacheEntry
		for _, k := range keys {
			entries = append(entries, cacheEntry{key: k.text(), question: k.question().text(), version: "1.2", features: []string{"a", "b"}})
		}
		c.store(entries)
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	find := func(k probeKey, text string) bool {
		c := NewProbeCache(t.TempDir())
		if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e, found := c.find(k.text())
		if found && (e.version != "1.2" || e.setuid || e.mapRoot || len(e.features) != 2) {
			t.Errorf("found %+v", e)
		}
		return found
	}
	both := file(native, key)
	for _, k := range []probeKey{key, native} {
		if !find(k, both) {
			t.Errorf("%+v is not found in %s", k, both)
		}
	}
	other := native
	other.UID = 100
	for name, text := range map[string]string{
		"another user":     file(other, key),
		"another version":  strings.Replace(both, "probes 3", "probes 4", 1),
		"nothing":          "",
		"a damaged file":   strings.Replace(both, "native", "nativ", 2),
		"without its head": both[1:],
		"without its end":  both[:len(both)-1],
	} {
		if find(native, text) {
			t.Errorf("%s: found in %s", name, text)
		}
	}
}
