package notify

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// The thread that opens files for a command has no capability that the command lacks. N9
func TestThreadCapabilities(t *testing.T) {
	testenv.AlsoAsUser(t)
	want := "0000000000000000"
	if os.Geteuid() == 0 {
		want = "000000000000000b" // chown, dac_override, fowner
	}
	type result struct {
		status []byte
		err    error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this
		err := isolateThread(false)
		status, readErr := os.ReadFile("/proc/thread-self/status")
		if err == nil {
			err = readErr
		}
		results <- result{status, err}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		_, rest, _ := strings.Cut(string(r.status), set+":\t")
		got, _, _ := strings.Cut(rest, "\n")
		if (set == "CapPrm" || set == "CapEff") && got != want || (set == "CapInh" || set == "CapAmb") && got != "0000000000000000" {
			t.Errorf("%s is %s", set, got)
		}
	}
}
