package verify

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// environment compares the variables inside with those of the plan, by hashes.
func (r *Run) environment() {
	for _, v := range r.plan.Env {
		c := check{rules: []string{"env"}, subject: v.Name, origin: v.Origin, attempts: []attempt{{Do: "variable", Path: prober.Text(v.Name), Data: prober.Text(r.token)}}}
		c.judge = func(a []answer) verdict {
			switch {
			case !a[0].OK():
				return broken("it is not set")
			case a[0].Data != prober.Hash(prober.Text(r.token), prober.Text(v.Value)):
				return broken("it has another value")
			}
			return held("it has its value")
		}
		r.add(c)
	}
	c := check{rules: []string{"env"}, subject: "all others", origin: policy.Origin{Source: "built-in: only what the plan names"}}
	c.attempts = []attempt{{Do: "variables"}}
	c.judge = func(a []answer) verdict {
		for _, name := range a[0].List {
			if !r.planned(string(name)) {
				return broken("%s can be seen", name)
			}
		}
		return held("no other variable can be seen, in any process")
	}
	r.add(c)
}

// planned reports whether a variable may be seen inside. PWD may, because some programs
// that start the command set it.
func (r *Run) planned(name string) bool {
	return name == "PWD" || slices.ContainsFunc(r.plan.Env, func(v plan.Var) bool { return v.Name == name })
}

// limits compares the kernel's limits with those of the plan.
func (r *Run) limits() {
	resources := map[string]int64{plan.LimitProcesses: unix.RLIMIT_NPROC, plan.LimitOpenFiles: unix.RLIMIT_NOFILE, plan.LimitFileSize: unix.RLIMIT_FSIZE}
	for _, l := range r.plan.Limits {
		if l.Value < 0 {
			continue // there is none
		}
		c := check{rules: []string{"limits." + l.Name}, subject: strconv.FormatInt(l.Value, 10), origin: l.Origin}
		resource, kernel := resources[l.Name]
		if kernel {
			c.attempts = []attempt{{Do: "limit", N: resource}}
		}
		c.judge = func(a []answer) verdict {
			switch {
			case !kernel:
				return untested("it is kept from outside; trying it would mean using it up")
			case uint64(a[0].N) <= uint64(l.Value):
				return held("the kernel holds it")
			case l.Name == plan.LimitProcesses && (r.launch.Adopts || r.launch.Tagged):
				return untested("processes are counted from outside; trying it would mean using it up")
			}
			return broken("the kernel's limit is %s", limitText(a[0].N))
		}
		r.add(c)
	}
}

func limitText(n int64) string {
	if n < 0 { // RLIM_INFINITY
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}

// refusal adds a check that the kernel refuses an operation. If an operation could do
// harm, its arguments are wrong on purpose, and as are the errors that the kernel
// returns for such arguments if nothing refuses the operation.
func (r *Run) refusal(rule, what string, a attempt, as ...unix.Errno) {
	c := check{rules: []string{rule}, subject: what, origin: everySandbox, attempts: []attempt{a}}
	c.judge = func(got []answer) verdict {
		if got[0].OK() || slices.Contains(as, got[0].Errno) {
			return broken("the kernel would do it")
		}
		return held("refused: %v", got[0].Errno)
	}
	r.add(c)
}

// privileges tries operations that no confined program may do.
func (r *Run) privileges() {
	r.capabilities()
	r.state("privileges", "no_new_privs", unix.PR_GET_NO_NEW_PRIVS, 1)
	r.state("system calls", "filter", unix.PR_GET_SECCOMP, unix.SECCOMP_MODE_FILTER)
	r.refusal("system calls", "a new user namespace", attempt{Do: "clone", N: unix.CLONE_NEWUSER})
	r.refusal("system calls", "a new mount namespace", attempt{Do: "clone", N: unix.CLONE_NEWNS})
	r.refusal("system calls", "mounting", attempt{Do: "mount", Path: "/", To: "cloche-no-such-type"}, unix.ENODEV)
	r.refusal("system calls", "unmounting", attempt{Do: "umount", Path: "/proc/self/task"}, unix.EINVAL)
	r.refusal("system calls", "typing into a terminal", attempt{Do: "inject", M: unix.TIOCSTI}, unix.ENOTTY)
	r.refusal("privileges", "the kernel's settings", write("/proc/sys/kernel/core_pattern"))
	r.setuid()
}

var everySandbox = policy.Origin{Source: "built-in: every sandbox"}

// keptByRoot are the capabilities for files that a command of root keeps.
const keptByRoot = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER

func (r *Run) capabilities() {
	if r.plan.Privileged {
		return
	}
	c := check{rules: []string{"privileges"}, subject: "capabilities", origin: everySandbox, attempts: []attempt{{Do: "capabilities"}}}
	var may int64
	if os.Geteuid() == 0 {
		may = keptByRoot
	}
	c.judge = func(a []answer) verdict {
		switch {
		case !a[0].OK():
			return broken("they cannot be read: %v", a[0].Errno)
		case a[0].N&^may != 0:
			return broken("the command has %#x", a[0].N)
		case a[0].N != 0:
			return held("the command has only those over files that root needs")
		}
		return held("the command has none")
	}
	r.add(c)
}

// state adds a check of an attribute of the process, read with prctl.
func (r *Run) state(rule, subject string, option, want int64) {
	c := check{rules: []string{rule}, subject: subject, origin: everySandbox, attempts: []attempt{{Do: "prctl", N: option}}}
	c.judge = func(a []answer) verdict {
		if !a[0].OK() || a[0].N != want {
			return broken("it is not in force (%d, %v)", a[0].N, a[0].Errno)
		}
		return held("it is in force")
	}
	r.add(c)
}

// setuid tries to create a file that runs with its owner's rights.
func (r *Run) setuid() {
	c := check{rules: []string{"system calls"}, subject: "setuid files", origin: everySandbox}
	c = c.untestable("no folder of the host can be written")
	for _, e := range r.writableRoots() {
		at, ok := r.newName(e.Path)
		if !ok || !may(e.Source, unix.W_OK) {
			continue
		}
		made := e.Source + strings.TrimPrefix(at, e.Path) + "-setuid"
		r.trace(made)
		c.attempts = []attempt{create(at + "-setuid"), {Do: "chmod", Path: prober.Text(at + "-setuid"), N: 0o4700}}
		c.judge = func(a []answer) verdict {
			info, err := os.Lstat(made)
			switch {
			case err == nil && info.Mode()&os.ModeSetuid != 0:
				return broken("the bit can be set, and stays on the host")
			case !a[0].OK():
				return untested("no file can be made to try it: %v", a[0].Errno)
			}
			return held("refused: %v", a[1].Errno)
		}
		break
	}
	r.add(c)
}

// processes tries to see and to signal this process from inside.
func (r *Run) processes() {
	origin := policy.Origin{Source: "built-in: own processes"}
	for _, e := range r.plan.Paths {
		if e.Content == plan.Proc && e.Kind == hostfs.Dir {
			origin = e.Origin
		}
	}
	pid := os.Getpid()
	start, space := prober.StartTime(pid), prober.PIDNamespace()
	see := check{rules: []string{"processes"}, subject: "seeing processes of the host", origin: origin, attempts: []attempt{{Do: "started", N: int64(pid)}}}
	see.judge = func(a []answer) verdict {
		// A process inside may have the same number, but it starts later.
		if a[0].OK() && a[0].Data == start {
			return broken("cloche itself can be seen in /proc/%d", pid)
		}
		return held("cloche itself cannot be seen")
	}
	r.add(see)
	signal := check{rules: []string{"processes"}, subject: "signalling processes of the host", origin: origin, attempts: []attempt{{Do: "kill", N: int64(pid)}}}
	signal.judge = func(a []answer) verdict {
		switch {
		case !a[0].OK():
			return held("cloche itself cannot be signalled: %v", a[0].Errno)
		case space != 0 && a[0].Ino != space:
			return held("a process of that number is the command's own")
		}
		return broken("cloche itself can be signalled")
	}
	r.add(signal)
	r.refusal("processes", "memory of the first process", openWith("/proc/1/mem", unix.O_RDONLY))
}

// ipc tries to reach shared memory and keyrings of the host.
func (r *Run) ipc() {
	r.refusal("ipc", "keyrings", attempt{Do: "keyring", N: unix.KEY_SPEC_USER_KEYRING})
	key := 0
	for _, b := range []byte(r.token[:4]) {
		key = key<<8 | int(b&0x7f)
	}
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600)
	if err != nil {
		return
	}
	r.cleanups = append(r.cleanups, func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	r.refusal("ipc", "shared memory of the host", attempt{Do: "shmget", N: int64(key)})
}
