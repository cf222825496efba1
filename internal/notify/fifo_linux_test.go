//go:build amd64 || arm64

package notify

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A command makes a FIFO that nobody may open while one of its processes waits for
// the other end. The broker still ends, and the mode is what it was. F12
func TestFIFOWithoutMode(t *testing.T) {
	testenv.AlsoAsUser(t)
	dir := t.TempDir()
	done := make(chan string, 1)
	go func() {
		out, _ := run(t, workspace(dir, protect("**/.envrc")), "writes", "cd "+dir+"; mkfifo ff; (echo x > ff) & sleep 0.1; chmod 0 ff; kill $!; echo ended")
		done <- out
	}()
	select {
	case out := <-done:
		if !strings.Contains(out, "ended") {
			t.Error(out)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("the broker waits for a FIFO that it cannot open")
	}
	if info, err := os.Stat(dir + "/ff"); err != nil || info.Mode().Perm() != 0 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// Each open that waits takes a thread of the program that holds the rules, so there
// are only so many.
func TestFIFOsAreBounded(t *testing.T) {
	dir := t.TempDir()
	// The last opens are refused while the first wait, however long all take.
	script := "cd " + dir + `; mkfifo ff; : > refused; i=0
		while [ $i -lt 260 ]; do (: > ff) 2>> refused & all="$all $!"; i=$((i+1)); done
		i=0; while [ $(wc -l < refused) -lt 4 ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done
		: < ff; kill $all 2>/dev/null; wait; cat refused`
	out, _ := run(t, workspace(dir, protect("**/.envrc")), "writes", script)
	if n := strings.Count(out, "ff"); n < 260-maxWaiting || n > 200 {
		t.Errorf("%d opens are refused: %.300s", n, out)
	}
}
