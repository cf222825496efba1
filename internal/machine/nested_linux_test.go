package machine_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// nestedHelper has the answer that TestNested expects inside.
const nestedHelper = "CLOCHE_TEST_NESTED_HERE"

// N13: that a process is in a sandbox is known by a file on a read-only mount, and
// neither by the variable nor by a file that anybody could have written.
func TestNested(t *testing.T) {
	if want := os.Getenv(nestedHelper); want != "" {
		if got := machine.Nested(); got != (want == "yes") {
			t.Fatalf("%v, want %s", got, want)
		}
		return
	}
	testenv.Need(t, "userns", "unshare")
	for _, c := range []struct{ setup, want string }{
		{`rm -r /run/cloche`, "no"},
		{`true`, "no"},
		{`mount -o remount,bind,ro /run`, "yes"},
	} {
		script := `mount -t tmpfs none /run && mkdir /run/cloche && echo x > /run/cloche/policy && ` + c.setup + ` && exec "$0" -test.run '^TestNested$'`
		cmd := exec.Command("unshare", "-rm", "sh", "-c", script, testBinary(t))
		cmd.Env = append(os.Environ(), nestedHelper+"="+c.want, "CLOCHE_SANDBOX=native")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("after %s: %v\n%s", c.setup, err, out)
		}
	}
}

// testBinary is the program of this test.
func testBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}
