package apitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// cloche's own folders may lie in a folder of which a command sees another one. It does not see them then either.
func TestOwnFoldersInPrivateOnes(t *testing.T) {
	testenv.AlsoAsUser(t)
	for _, parent := range []string{"/dev/shm", "/tmp", "/var/tmp"} {
		for _, backend := range []string{"native", "bwrap"} {
			t.Run(backend+parent, func(t *testing.T) {
				testenv.Need(t, map[string]string{"native": "userns", "bwrap": "bwrap"}[backend])
				own, err := os.MkdirTemp(parent, "cloche-own-")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(own) })
				secret := filepath.Join(own, "a/b/cloche/secret")
				if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(secret, []byte("SECRET"), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("XDG_STATE_HOME", filepath.Join(own, "a/b"))
				t.Setenv("XDG_CACHE_HOME", filepath.Join(own, "c"))
				dir := workspace(t)
				modes := map[string][]cloche.Option{"cold": nil}
				if backend == "native" {
					modes["warm"] = []cloche.Option{cloche.WithWarm()}
				}
				for mode, opts := range modes {
					s := open(t, policy.Workspace(dir).With(policy.WithBackend(backend)), dir, opts...)
					r := capture(t, s, "cat '"+secret+"' 2>/dev/null; echo x >"+parent+"/mine; echo end")
					if string(r.Stdout) != "end\n" {
						t.Errorf("%s: inside: %s", mode, brief(r))
					}
				}
			})
		}
	}
}
