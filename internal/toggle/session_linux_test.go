package toggle

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// F8: a session can be told from others where its leader is not to be seen, as
// for a shell that was started into a container: all the processes of one have
// one key, which ends with the first of them.
func TestSessionLedFromOutside(t *testing.T) {
	if os.Getenv("CLOCHE_TEST_INSIDE") != "" {
		k, err := CurrentSession()
		if err != nil || !alive(k) {
			t.Fatalf("%q, %v", k, err)
		}
		_, _ = os.Stdout.WriteString("key " + k + "\n")
		return
	}
	testenv.Need(t, "userns", "bwrap")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := `"$0" -test.run "$1"; sh -c '"$0" -test.run "$1"; :' "$0" "$1"; :`
	cmd := exec.Command("bwrap", "--bind", "/", "/", "--unshare-user", "--unshare-pid", "--as-pid-1", "--proc", "/proc", "--",
		"sh", "-c", script, self, "^TestSessionLedFromOutside$")
	cmd.Env = append(os.Environ(), "CLOCHE_TEST_INSIDE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	keys := keyLines(string(out))
	if len(keys) != 2 || keys[0] != keys[1] {
		t.Errorf("the keys of one session: %q", keys)
	}
	if len(keys) > 0 && alive(keys[0]) {
		t.Error("the session's key is alive after it ended")
	}
}

func keyLines(out string) []string {
	var keys []string
	for line := range strings.Lines(out) {
		if k, ok := strings.CutPrefix(line, "key "); ok {
			keys = append(keys, strings.TrimSpace(k))
		}
	}
	return keys
}
