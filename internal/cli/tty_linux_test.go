package cli

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// ttyScript says by which name a command finds its terminal, whether it can use that name,
// and what terminals a program inside makes.
const ttyScript = `echo name $(tty); echo size $(stty -F $(tty) size); echo "written" >$(tty)
echo device $(stat -c %t:%T /dev/console) $(stat -Lc %t:%T /proc/self/fd/0)
echo others $(ls /dev/pts)
script -qc 'echo inner $(tty)' /dev/null
echo end`

// C1: a command with a terminal of its own finds it by a name, as tty(1) does. It is not the
// caller's, and there is no other one.
func TestTerminalHasName(t *testing.T) {
	testenv.Need(t, "userns", "bwrap", "landlock", "script")
	testenv.AlsoAsUser(t)
	for _, backend := range []string{"native", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			s := newSchool(t)
			master, slave, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			if err := pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 120}); err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(slave.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			cmd := s.command(t, "cloche", "run", "--backend", backend, "--ro", s.root, "--", "sh", "-c", ttyScript)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			x := newScreen(master)
			if err := cmd.Run(); err != nil {
				t.Errorf("%v: %s", err, x.text())
			}
			testenv.Eventually(t, "the end", func() bool { return strings.Contains(x.text(), "\nend\n") })
			for _, want := range []string{"name /dev/console\n", "size 24 120\n", "written\n", "others ptmx\n", "inner /dev/pts/0\n"} {
				if !strings.Contains(x.text(), want) {
					t.Errorf("no %q in: %s", want, x.text())
				}
			}
			devices := regexp.MustCompile(`device (\S+) (\S+)\n`).FindStringSubmatch(x.text())
			outer := fmt.Sprintf("%x:%x", unix.Major(st.Rdev), unix.Minor(st.Rdev))
			if devices == nil || devices[1] != devices[2] || devices[1] == outer {
				t.Errorf("the devices are %q, the caller's is %s", devices, outer)
			}
		})
	}
}
