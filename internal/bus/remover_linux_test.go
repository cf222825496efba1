package bus

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testbus"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// reserverVariable makes TestReserver the process that is killed: how far it goes,
// the folder, and the address of the bus.
const reserverVariable = "CLOCHE_TEST_BUS_RESERVER"

// TestReserver is the process that the tests below kill.
func TestReserver(t *testing.T) {
	part := strings.Split(os.Getenv(reserverVariable), " ")
	if len(part) != 3 {
		t.Skip("runs as a part of TestKilledLeavesNoFolder")
	}
	for {
		p, err := Reserve(part[1])
		if err == nil && part[0] != "reserve" {
			err = p.Start(context.Background(), "/usr/bin/"+Program, &plan.Bus{Address: part[2]})
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("at", p.Socket())
		if part[0] != "again" {
			select {}
		}
		p.Close()
	}
}

// reserver starts a TestReserver, and returns it when it is where it should be.
func reserver(t *testing.T, how string, d *testbus.Daemon) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestReserver$")
	c.Env = append(os.Environ(), reserverVariable+"="+how+" "+d.Dir+" "+d.Address)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "at ") {
		t.Fatalf("it says %q, %v", lines.Text(), lines.Err())
	}
	go func() {
		for lines.Scan() { // so that it is not held up
		}
	}()
	return c
}

func killReserver(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Process.Wait()
}

func foldersIn(dir string) []string {
	left, _ := filepath.Glob(dir + "/" + folderPrefix + "*")
	return left
}

// A9 F12: SIGKILL leaves no folder, whenever it comes: when there is only a folder,
// when the proxy listens in it, and at any moment between.
func TestKilledLeavesNoFolder(t *testing.T) {
	testenv.AlsoAsAccount(t)
	d := testbus.Start(t)
	for _, how := range []string{"reserve", "start"} {
		c := reserver(t, how, d)
		if n := len(foldersIn(d.Dir)); n != 1 {
			t.Errorf("%s: there are %d folders before, want 1", how, n)
		}
		killReserver(t, c)
		leavesNoFolder(t, how, d.Dir)
	}
	for range 10 {
		c := reserver(t, "again", d)
		time.Sleep(rand.N(40 * time.Millisecond)) // the moment of the kill is what varies
		killReserver(t, c)
		leavesNoFolder(t, "at any moment", d.Dir)
	}
}

func leavesNoFolder(t *testing.T, when, dir string) {
	t.Helper()
	if !testenv.Becomes(func() bool { return len(foldersIn(dir)) == 0 }) {
		t.Fatalf("%s: left behind: %v", when, foldersIn(dir))
	}
}

// A9: what removes a folder touches none that is somebody else's, or that a link
// leads to.
func TestRemoverTouchesNothingElse(t *testing.T) {
	dir := short(t)
	own, link := filepath.Join(dir, "own"), filepath.Join(dir, "link")
	for _, err := range []error{os.Mkdir(own, 0o700), os.WriteFile(filepath.Join(own, socketName), nil, 0o600), os.Symlink(own, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		folder string
		stays  bool
	}{{link, true}, {filepath.Join(dir, "missing"), true}, {own, false}} {
		r, err := startRemover()
		if err == nil {
			err = r.watch(tt.folder)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = r.tell.Close() // as if this process was killed
		<-r.done
		if _, err := os.Lstat(filepath.Join(own, socketName)); (err == nil) != tt.stays {
			t.Errorf("%s: the file is there: %v, want %v", tt.folder, err == nil, tt.stays)
		}
	}
}

// A9: once the folder is removed, so is the process.
func TestRemoverIsDismissed(t *testing.T) {
	p, err := Reserve(short(t))
	if err != nil {
		t.Fatal(err)
	}
	p.Unlink()
	p.Close()
	select {
	case <-p.remover.done:
	default:
		t.Error("the remover outlives the proxy")
	}
}
