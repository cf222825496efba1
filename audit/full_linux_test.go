package audit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// W8: on a disk that is full the ends of runs are recorded, and no new run is.
func TestFullDisk(t *testing.T) {
	testenv.Need(t, "userns")
	testenv.AlsoAsUser(t)
	self, err := os.Executable()
	must(t, err)
	c := exec.Command(self, t.TempDir())
	c.Env = append(os.Environ(), childVar+"=full")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// runFull records runs on a small file system of its own while that is filled.
func runFull(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=2m"); err != nil {
		return err
	}
	path := filepath.Join(dir, "audit")
	at := day(1)
	open := func() *Dir {
		d := NewDir(path)
		d.now = func() time.Time { return at }
		return d
	}
	const runs = 50
	var logs []*Dir
	for i := range runs {
		d := open() // as a process of its own would
		logs = append(logs, d)
		if err := d.Record(Event{Kind: Start, Run: fmt.Sprint(i), Argv: []string{"fill"}}); err != nil {
			return err
		}
	}
	if err := fill(filepath.Join(dir, "filled")); err != nil {
		return err
	}
	at = day(2) // the file of another day would be a new one
	for _, kind := range []string{Start, Connected, Refused} {
		if err := open().Record(Event{Kind: kind, Run: "later", Argv: []string{strings.Repeat("x", 5000)}}); !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("a record of kind %s on a full disk: %v", kind, err)
		}
	}
	end := Event{Kind: End, Argv: []string{"fill", strings.Repeat("x", 4000)}, Error: strings.Repeat("é", 3000)}
	for range 100 {
		end.Denied = append(end.Denied, Denial{Op: "create", Path: strings.Repeat("x", 200), Count: 2})
	}
	for i, d := range logs {
		code := i
		end.Run, end.ExitCode = fmt.Sprint(i), &code
		if err := d.Record(end); err != nil {
			return fmt.Errorf("the end of run %d: %w", i, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "filled")); err != nil {
		return err
	}
	if err := open().Record(Event{Kind: Start, Run: "after"}); err != nil {
		return err
	}
	return checkFull(path, runs)
}

// fill takes all the space there is.
func fill(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{1 << 16, 1} {
		for block := make([]byte, size); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}

// checkFull reads what was recorded.
func checkFull(path string, runs int) error {
	report, err := Verify(path)
	if err != nil || len(report.Findings) > 0 {
		return fmt.Errorf("verify: %v, %w", report.Findings, err)
	}
	ended := map[string]bool{}
	for e, err := range Read(path, Filter{Since: day(2)}) {
		if err != nil {
			return err
		}
		if e.Kind == End {
			if e.ExitCode == nil || fmt.Sprint(*e.ExitCode) != e.Run || e.DeniedMore != 200 || !e.Clipped || len(e.Notices) == 0 {
				return fmt.Errorf("the end is %+v", e)
			}
			ended[e.Run] = true
		}
	}
	if len(ended) != runs {
		return fmt.Errorf("%d of %d ends are recorded", len(ended), runs)
	}
	return nil
}
