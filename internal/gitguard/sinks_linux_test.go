package gitguard

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A workspace can bring settings along that are a pipe, a device or a file without
// an end. They are reported; nobody waits for them, and they are not read whole. N8
func TestSinksOfHostileSettings(t *testing.T) {
	for name, plant := range map[string]func(string) error{
		"a pipe":             func(p string) error { return unix.Mkfifo(p, 0o644) },
		"a device":           func(p string) error { return os.Symlink("/dev/zero", p) },
		"a file of any size": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o644), os.Truncate(p, 1<<40)) },
		"included by another": func(p string) error {
			return errors.Join(unix.Mkfifo(p+".in", 0o644), os.WriteFile(p, []byte("[include]\n\tpath = config.in\n"), 0o644))
		},
	} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(dir+"/.git", 0o755), plant(dir+"/.git/config")); err != nil {
			t.Fatal(err)
		}
		if _, err := Sinks(dir, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
