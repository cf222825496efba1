package supervise

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

func TestExitStatus(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		for script, want := range map[string]Outcome{
			"exit 0":                  {},
			"exit 42":                 {ExitCode: 42},
			"kill -TERM $$; sleep 60": {ExitCode: 143, Signal: unix.SIGTERM},
			"kill -KILL $$; sleep 60": {ExitCode: 137, Signal: unix.SIGKILL},
		} {
			got, out := run(t, spec(script))
			if got.Duration <= 0 || got.MaxRSS <= 0 {
				t.Errorf("%q: duration %v, resident %d", script, got.Duration, got.MaxRSS)
			}
			got.Duration, got.UserTime, got.SystemTime, got.MaxRSS = 0, 0, 0, 0
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %+v, want %+v; output %q", script, got, want, out)
			}
		}
	})
}

func TestStreams(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		var out, errs bytes.Buffer
		s := spec("cat; echo oops >&2")
		s.Stdin, s.Stdout, s.Stderr = strings.NewReader(strings.Repeat("line\n", 50000)), &out, &errs
		if o := wait(t, begin(t, s)); o.ExitCode != 0 {
			t.Errorf("%+v", o)
		}
		if out.Len() != 250000 || errs.String() != "oops\n" {
			t.Errorf("%d bytes of output, error %q", out.Len(), errs.String())
		}
	})
}

func TestNoStreams(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		if o := wait(t, begin(t, spec("cat && echo x && echo y >&2 && readlink /proc/self/fd/0 | grep -q null"))); o.ExitCode != 0 {
			t.Errorf("%+v", o)
		}
	})
}

// An *os.File is handed on itself, not a copy of what goes through it.
func TestFilesPassThrough(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		s := spec("[ /dev/fd/1 -ef /dev/null ]")
		s.Stdout = null
		if o := wait(t, begin(t, s)); o.ExitCode != 0 {
			t.Errorf("standard output is not the device: %+v", o)
		}
	})
}

// A file of the host is not handed over itself: see passable.
func TestRegularFilesAreCopied(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		f, err := os.CreateTemp(tempDir(t), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s := spec("echo copied; [ ! /dev/fd/1 -ef " + f.Name() + " ]")
		s.Stdout = f
		if o := wait(t, begin(t, s)); o.ExitCode != 0 {
			t.Errorf("standard output is the file: %+v", o)
		}
		if got, err := os.ReadFile(f.Name()); err != nil || string(got) != "copied\n" {
			t.Errorf("the file holds %q, %v", got, err)
		}
	})
}

func TestExtraFiles(t *testing.T) {
	testenv.Need(t, "bwrap")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := noLimits(bwrapLaunch("echo through >&4; ls /proc/self/fd | wc -l", 2, false))
	s.ExtraFiles = []*os.File{r, w}
	_, out := run(t, s)
	w.Close()
	if b, _ := io.ReadAll(r); string(b) != "through\n" {
		t.Errorf("descriptor 4: %q", b)
	}
	if strings.TrimSpace(out) != "6" { // and the folder that ls reads
		t.Errorf("%s descriptors, want 6", out)
	}
	s.ExtraFiles = s.ExtraFiles[:1]
	if _, err := Start(context.Background(), s); err == nil {
		t.Error("a launch for two extra files was started with one")
	}
}

// A reader that never returns must not keep Wait from returning.
func TestBlockedStdin(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		r, w := io.Pipe()
		defer w.Close() // lets the goroutine go
		s := spec("exit 4")
		s.Stdin = r
		if o, _ := run(t, s); o.ExitCode != 4 {
			t.Errorf("%+v", o)
		}
	})
}

// Descriptors that this process holds without close-on-exec stay here.
func TestNothingIsInherited(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		fd, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0)
		if err != nil {
			fd, err = unix.Open("/etc/passwd", unix.O_RDONLY, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 300)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		defer unix.Close(high)
		_, out := run(t, spec("ls /proc/self/fd | wc -l"))
		if strings.TrimSpace(out) != "4" {
			t.Errorf("%s descriptors, want 4: the standard ones and the folder that ls reads", out)
		}
	})
}

// The command can neither trace pid 1 nor look into it.
func TestInitIsOpaque(t *testing.T) {
	testenv.Need(t, "bwrap")
	script := `for f in environ mem fd/0 maps; do
		if head -c1 /proc/1/$f >/dev/null 2>&1; then echo "readable: $f"; fi
	done; readlink /proc/1/fd/*; kill -9 1; kill -STOP 1; echo end; cat /proc/1/comm`
	o, out := run(t, noLimits(bwrapLaunch(script, 0, false)))
	if o.ExitCode != 0 || out != "end\ncloche-init\n" {
		t.Errorf("%+v: %s", o, out)
	}
}

func TestExecErrors(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		for path, want := range map[string]ExecError{
			"/nowhere/x": {"/nowhere/x", unix.ENOENT},
			"/etc":       {"/etc", unix.EACCES},
		} {
			s := spec("")
			s.Command = path
			for i, a := range s.Launch.Argv {
				if a == "/bin/sh" {
					s.Launch.Argv[i] = path
				}
			}
			_, err := Start(context.Background(), s)
			var got *ExecError
			if !errors.As(err, &got) || *got != want {
				t.Errorf("%s: %v, want %v", path, err, &want)
			}
		}
	})
	if c := (&ExecError{Errno: unix.ENOENT}).ExitCode(); c != 127 {
		t.Errorf("not found: exit code %d", c)
	}
	if c := (&ExecError{Errno: unix.EACCES}).ExitCode(); c != 126 {
		t.Errorf("not executable: exit code %d", c)
	}
}

// A launcher that fails is distinguished from a command that exits with the same
// code, whatever either of them prints.
func TestSetupErrors(t *testing.T) {
	testenv.Need(t, "bwrap")
	broken := bwrapLaunch("true", 0, false)
	broken.Files[len(broken.Files)-1].Data = []byte("--bind\x00/nowhere\x00/nowhere\x00")
	var setup *SetupError
	if _, err := Start(context.Background(), noLimits(broken)); !errors.As(err, &setup) || setup.Backend != "bwrap" {
		t.Errorf("a bad mount: %v", err)
	}
	absent := bwrapLaunch("true", 0, false)
	absent.Argv[0] = "/nowhere/bwrap"
	if _, err := Start(context.Background(), noLimits(absent)); !errors.As(err, &setup) {
		t.Errorf("no bwrap: %v", err)
	}
	spec := noLimits(bwrapLaunch("echo 'bwrap: Can not do that' >&2; exit 1", 0, false))
	if o, _ := run(t, spec); o.ExitCode != 1 {
		t.Errorf("a command that looks like a failure: %+v", o)
	}
}

func TestSignal(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR1} {
			ready := tempDir(t) + "/ready"
			p := begin(t, spec("trap 'exit 9' TERM INT HUP USR1; echo >"+ready+"; while :; do sleep 0.02; done"))
			waitFor(t, ready)
			if err := p.Signal(sig); err != nil {
				t.Errorf("%v: %v", sig, err)
			}
			if o := wait(t, p); o.ExitCode != 9 {
				t.Errorf("%v: %+v", sig, o)
			}
			if err := p.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("after the end: %v", err)
			}
		}
	})
}

func TestConcurrentRuns(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if o, out := run(t, spec("echo hello; exit 3")); o.ExitCode != 3 || out != "hello\n" {
					t.Errorf("%+v %q", o, out)
				}
			})
		}
		wg.Wait()
	})
}

func TestDescriptorsDoNotPileUp(t *testing.T) {
	each(t, func(t *testing.T, spec func(string) Spec) {
		once := func() {
			s := spec("echo x")
			s.Stdin = strings.NewReader("in")
			run(t, s)
			s.Launch.Argv = []string{"/nowhere/x"}
			if _, err := Start(context.Background(), s); err == nil {
				t.Error("started /nowhere/x")
			}
		}
		once()
		before := len(openDescriptors())
		for range 200 {
			once()
		}
		testenv.Eventually(t, "the number of descriptors is what it was", func() bool { return len(openDescriptors()) <= before })
	})
}

func TestContextIsDone(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if _, err := Start(ctx, noLimits(noneLaunch("true"))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
