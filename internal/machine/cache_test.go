package machine

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// F2: a remembered probe is found in the file by its whole key, and only by that.
func TestKeyIsInFile(t *testing.T) {
	key := probeKey{Boot: "7d52", Kernel: "6.18.0-x", UID: 1000, UserNS: "user:[1]", MountNS: "mnt:[2]", MaxUser: 9, UnprivilegedClone: -1, AppArmorRestrict: -1}
	native := key
	native.Program = "native"
	file := func(version int, entries ...cacheEntry) []byte {
		data, err := json.Marshal(cacheFile{Version: version, Entries: entries})
		if err != nil {
			t.Fatal(err)
		}
		return append(data, '\n')
	}
	find := func(k probeKey, data []byte) bool {
		folder := t.TempDir()
		c := NewProbeCache(folder)
		if err := os.WriteFile(c.file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, found := c.find(k)
		return found
	}
	both := file(cacheVersion, cacheEntry{Key: native}, cacheEntry{Key: key})
	for _, k := range []probeKey{key, native} {
		if !find(k, both) {
			t.Errorf("%+v is not found in %s", k, both)
		}
	}
	other := native
	other.UID = 100
	for name, data := range map[string][]byte{
		"another user":     file(cacheVersion, cacheEntry{Key: other}, cacheEntry{Key: key}),
		"another version":  file(cacheVersion+1, cacheEntry{Key: native}),
		"nothing":          nil,
		"a damaged file":   []byte(strings.Replace(string(both), "native", "nativ", 1)),
		"without its head": both[1:],
	} {
		if find(native, data) {
			t.Errorf("%s: found in %s", name, data)
		}
	}
}
