package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeAndMove are two programs: one makes a file in a directory, the other moves the
// directory to a name under which a rule is about the file.
const (
	makeScript = `
import os, time
end = time.time() + 3
while time.time() < end and not os.path.exists("won"):
    try: os.close(os.open("x/config.toml", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError: continue
    if os.path.exists(".cargo/config.toml"): open("won", "w").close()
    try: os.unlink("x/config.toml")
    except OSError: pass`
	moveScript = `
import os, time
end = time.time() + 3
while time.time() < end and not os.path.exists("won"):
    try: os.rename("x", ".cargo")
    except OSError: continue
    if os.path.exists(".cargo/config.toml"): open("won", "w").close()
    else: os.rename(".cargo", "x")`
)

// N9: two sandboxes with brokers of their own cannot put a file under a name that a
// rule protects by changes of which each is allowed. Without the lock they can.
func TestTwoBrokers(t *testing.T) {
	state := t.TempDir()
	for _, lock := range []string{"", filepath.Join(state, "cloche/changes.lock")} {
		won := raceOfTwo(t, lock)
		for tries := 0; !won && lock == "" && tries < 5; tries++ { // a race may be lost
			won = raceOfTwo(t, lock)
		}
		if won != (lock == "") {
			t.Errorf("lock %q: the protected file was made: %v", lock, won)
		}
	}
}

func raceOfTwo(t *testing.T, lock string) bool {
	t.Helper()
	dir := realTemp(t)
	if err := os.Mkdir(dir+"/x", 0o755); err != nil {
		t.Fatal(err)
	}
	config := workspace(dir, protect("**/.cargo/config.toml"))
	config.Lock = lock
	var both []*confined
	for _, script := range []string{makeScript, moveScript} {
		both = append(both, start(t, config, "writes", "python3", "-c", "import os; os.chdir('"+dir+"')"+script))
	}
	for _, c := range both {
		_ = c.cmd.Wait()
	}
	_, err := os.Stat(dir + "/won")
	return err == nil
}

// N9: a lock that another holds for ever, or that cannot be made, refuses a change,
// after a time and on record.
func TestLockRefuses(t *testing.T) {
	state := t.TempDir()
	held := filepath.Join(state, "held.lock")
	fd, err := unix.Open(held, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, lock := range map[string]string{"held": held, "no directory": state + "/file/changes.lock", "relative": "changes.lock"} {
		t.Run(name, func(t *testing.T) {
			dir := realTemp(t)
			config := workspace(dir, protect("**/.envrc"))
			config.Lock = lock
			began := time.Now()
			c := start(t, config, "writes", "sh", "-c", "cat /dev/null; echo x > "+dir+"/file")
			_ = c.cmd.Wait()
			if time.Since(began) > 10*lockPatience {
				t.Errorf("it took %v", time.Since(began))
			}
			if _, err := os.Stat(dir + "/file"); err == nil {
				t.Error("the change was made")
			}
			list, _ := c.broker.Denied()
			if len(list) == 0 || !strings.Contains(list[0].Reason, "lock") {
				t.Errorf("on record: %+v", list)
			}
		})
	}
}
