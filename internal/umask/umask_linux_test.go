package umask

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int{
		"Name:\tsh\nUmask:\t0022\nState:\tR\n":                               0o022,
		"Name:\tsh\nUmask:\t0777\nState":                                     0o777,
		"Name:\tsh\nUmask:\t0000\n":                                          0,
		"Name:\t" + strings.Repeat(`\n`, 15) + "\nUmask:\t0077\nState:\tR\n": 0o077,
		"Name:\tUmask:\t0777\nUmask:\t0022\n":                                0o022,
		"Name:\tsh\nUmask:\t00":                                              -1, // cut off
		"Name:\tsh\nUmask:\t\n":                                              -1,
		"Name:\tsh\nUmask:\t0o22\n":                                          -1,
		"Name:\tsh\nUmask:\t0922\n":                                          -1,
		"Name:\tsh\nUmask:\t000000000000000000022\n":                         -1,
		"Name:\tsh\nState:\tR\n":                                             -1,
		"":                                                                   -1,
	} {
		if got := Parse([]byte(text)); got != want {
			t.Errorf("%q: %o, want %o", text, got, want)
		}
	}
}

// A thread with a file system context of its own has a mask of its own.
func TestOfThread(t *testing.T) {
	before := unix.Umask(0o022)
	defer unix.Umask(before)
	other, done := make(chan int), make(chan bool)
	defer close(done)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			t.Error(err)
		}
		unix.Umask(0o057)
		other <- unix.Gettid()
		<-done
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine, their := unix.Gettid(), <-other
	if got := Of(status(mine)); got != 0o022 {
		t.Errorf("this thread has %o", got)
	}
	if got := Of(status(their)); got != 0o057 {
		t.Errorf("the other thread has %o", got)
	}
	if Shared(mine, their) || !Shared(mine, mine) {
		t.Error("who shares a mask with whom is not known")
	}
	if !Apart(mine, their) || Apart(mine, mine) {
		t.Error("who does not share a mask is not known")
	}
	if !Apart(1<<30, mine) || !Apart(1<<30, 1<<30) {
		t.Error("a thread that does not exist shares a mask")
	}
	if got := Of(status(1 << 30)); got != -1 {
		t.Errorf("no thread has %o", got)
	}
}

// The name of a thread is the first line, and a program chooses it.
func TestOfNamed(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name, err := os.ReadFile("/proc/thread-self/comm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile("/proc/thread-self/comm", name, 0)
	if err := os.WriteFile("/proc/thread-self/comm", []byte("\nUmask:\t0777\n\\\n"), 0); err != nil {
		t.Fatal(err)
	}
	before := unix.Umask(0o023)
	defer unix.Umask(before)
	if got := Of(status(unix.Gettid())); got != 0o023 {
		t.Errorf("the mask is %o", got)
	}
}

func status(tid int) string { return "/proc/self/task/" + strconv.Itoa(tid) + "/status" }
