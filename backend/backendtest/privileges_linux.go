package backendtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/prober"
	"github.com/cloche-dev/cloche/policy"
)

var privilegeCases = []testCase{
	{"privileges/capabilities", []string{"privileges"}, capabilities},
	{"privileges/namespaces", []string{"system calls"}, namespaces},
	{"privileges/mounts", []string{"system calls"}, mounts},
	{"privileges/terminal-injection", []string{"system calls"}, terminalInjection},
	{"privileges/foreign-owner", []string{"privileges"}, foreignOwner},
	{"privileges/other-owner", []string{"privileges"}, otherOwner},
	{"privileges/setuid", []string{"system calls"}, setuidBits},
	{"privileges/kernel-settings", []string{"privileges"}, kernelSettings},
	{"privileges/kernel-tables", []string{"processes"}, kernelTables},
	{"privileges/kernel-folders", []string{"paths.hide"}, kernelFolders},
}

// rootMayKeep are the capabilities that a command of root may keep: CHOWN, DAC_OVERRIDE
// and FOWNER. Without them root could not use files of others.
const rootMayKeep = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER

// F6: the command has no privileges and cannot gain any.
func capabilities(c *check) {
	a := c.box().do(read("/proc/self/status"))[0]
	c.allowed(a)
	status := fields(string(a.Data))
	if status["NoNewPrivs"] != "1" {
		c.Errorf("NoNewPrivs is %q", status["NoNewPrivs"])
	}
	var may uint64
	if os.Geteuid() == 0 {
		may = rootMayKeep
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
		caps, err := strconv.ParseUint(status[set], 16, 64)
		if err != nil || caps&^may != 0 {
			c.Errorf("%s is %q", set, status[set])
		}
	}
}

// fields reads the lines "Name:\tvalue" of a file of /proc.
func fields(s string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(s) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// F11: no namespace can be made. A new user namespace would give all capabilities.
func namespaces(c *check) {
	var ops []op
	for _, flag := range []int64{unix.CLONE_NEWUSER, unix.CLONE_NEWUSER | unix.CLONE_NEWNS, unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWPID} {
		ops = append(ops, op{Do: "clone", N: flag, M: 1}, op{Do: "clone", N: flag})
	}
	c.refused(c.box().do(ops...)...)
}

// F11: nothing can be mounted, and no hidden path can be unmounted.
func mounts(c *check) {
	hidden := c.file(secret, c.ws, "key")
	folder := filepath.Dir(c.file(secret, c.ws, "folder/key"))
	at := c.dir(c.ws, "at")
	c.cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	answers := c.box(policy.HidePaths(hidden, folder)).do(
		fromTo("mount", at, "tmpfs"), umount(hidden), umount(folder), umount("/tmp"), umount("/proc"),
		remount("/"), remount(c.base), remount("/etc/hosts"),
		read(hidden), read(folder+"/key"), create(c.outside+"/new"),
	)
	c.refused(answers...)
}

// F11: the kernel's settings cannot be changed. They belong to root in every user
// namespace, and a program that is written to core_pattern runs outside. The test
// writes the value that is already there.
func kernelSettings(c *check) {
	b := c.box()
	for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run"} {
		value, err := os.ReadFile(p)
		if err != nil {
			continue // this kernel has no such setting
		}
		c.refused(b.do(write(p, string(value)))...)
	}
}

// F11: files in /proc about the whole machine are empty. Some can be read only by root;
// root's files belong to root in every user namespace.
func kernelTables(c *check) {
	var ops []op
	for _, name := range []string{"interrupts", "keys", "kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "pagetypeinfo", "sched_debug", "slabinfo", "timer_list", "timer_stats", "vmallocinfo"} {
		p := "/proc/" + name
		if a := prober.Try(read(p), nil); a.OK() && len(a.Data) > 0 { // this kernel has the file, and this user can read it
			ops = append(ops, read(p))
		}
	}
	for i, a := range c.box().do(ops...) {
		if len(a.Data) > 0 {
			c.Errorf("%s can be read inside", ops[i].Path)
		}
	}
}

// F11: directories in /sys that show data of the firmware and the kernel are empty.
func kernelFolders(c *check) {
	var ops []op
	for _, p := range []string{"/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/config", "/sys/fs/bpf", "/sys/fs/pstore"} {
		if a := prober.Try(list(p), nil); a.OK() && len(a.List) > 0 {
			ops = append(ops, list(p))
		}
	}
	for i, a := range c.box().do(ops...) {
		if len(a.List) > 0 {
			c.Errorf("%s can be listed inside: %s", ops[i].Path, a.List)
		}
	}
}

// F11: nothing can be typed into a terminal, not even into the command's own.
func terminalInjection(c *check) {
	b := c.box()
	b.adjust = func(cmd *cloche.Cmd) { cmd.TTY = cloche.TTYAlways }
	ops := []op{{Do: "inject", N: 0, M: unix.TIOCSTI}, {Do: "inject", N: 0, M: unix.TIOCLINUX}}
	cmd := b.probe(ops...)
	r, err := cmd.Capture()
	if err != nil {
		c.Fatalf("the probe did not run: %v", err)
	}
	c.refused(c.answers(r, ops)...)
}

// F3: root can work in a folder that belongs to another user.
func foreignOwner(c *check) {
	if os.Geteuid() != 0 {
		c.Skipf("only root can make files of others")
	}
	p := c.file("text", c.ws, "file")
	c.must(os.Chmod(p, 0o600))
	for _, f := range []string{p, c.ws} {
		c.must(os.Chown(f, 54321, 54321))
	}
	c.must(os.Chmod(c.ws, 0o700))
	c.allowed(c.box().do(read(p), write(p, "more"), chmod(p, 0o640), create(c.ws+"/new"),
		op{Do: "chown", Path: text(c.ws + "/new"), N: 54321}, on("unlink", c.ws+"/new"))...)
}

// F3: an ordinary user cannot give a file away, and gets the same error as outside.
// fakeroot continues only after EPERM.
func otherOwner(c *check) {
	if os.Geteuid() == 0 {
		c.Skipf("root can give files away")
	}
	p := c.file("text", c.ws, "file")
	c.refusedWith(unix.EPERM, c.box().do(op{Do: "chown", Path: text(p), N: int64(os.Getuid()) + 1})...)
	c.allowed(c.box().do(op{Do: "chown", Path: text(p), N: -1})...)
}

// F3: no file in the workspace can get a mode that gives its owner's rights to every
// user who runs it on the host.
func setuidBits(c *check) {
	p := c.file("x", c.ws, "tool")
	made := filepath.Join(c.ws, "made")
	c.box().do(chmod(p, 0o4755), createMode(made, 0o4755))
	for _, f := range []string{p, made} {
		if info, err := os.Stat(f); err == nil && info.Mode()&os.ModeSetuid != 0 {
			c.Errorf("%s has the mode %v", f, info.Mode())
		}
	}
	c.allowed(c.box().do(chmod(p, 0o755))...)
}

var ipcCases = []testCase{
	{"ipc/shared-memory", []string{"ipc"}, sharedMemory},
	{"ipc/message-queue", []string{"ipc"}, messageQueue},
	{"ipc/keyring", []string{"ipc"}, keyring},
	{"ipc/key-names", []string{"processes"}, keyNames},
}

// F11: the host's System V shared memory cannot be reached.
func sharedMemory(c *check) {
	key := int(unix.Getpid())<<8 ^ 0x10c4e
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		c.Skipf("no shared memory here: %v", err)
	}
	c.cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	c.refused(c.box().do(op{Do: "shmget", N: int64(key)})...)
}

// F11: the host's message queues cannot be reached.
func messageQueue(c *check) {
	name, err := unix.ByteSliceFromString(c.token)
	c.must(err)
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, bytePointer(name), uintptr(unix.O_RDWR|unix.O_CREAT|unix.O_EXCL), 0o666, 0, 0, 0)
	if errno != 0 {
		c.Skipf("no message queue here: %v", errno)
	}
	c.cleanup(func() {
		_ = unix.Close(int(fd))
		_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, bytePointer(name), 0, 0)
	})
	c.refused(c.box().do(on("mq_open", c.token))...)
}

// F11: the caller's keyrings cannot be searched.
func keyring(c *check) {
	var ops []op
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		id, err := unix.AddKey("user", c.token, []byte(secret), ring)
		if err != nil {
			c.Logf("keyring %d is left out: %v", ring, err)
			continue
		}
		c.cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0) })
		ops = append(ops, op{Do: "keysearch", Path: text(c.token), N: int64(ring)})
	}
	if len(ops) == 0 {
		c.Skipf("no keyring can be used here")
	}
	c.refused(c.box().do(ops...)...)
}

// F11: the names of the host's keys cannot be listed. /proc/keys has all keys of the
// user, in whichever namespace they were made.
func keyNames(c *check) {
	id, err := unix.AddKey("user", c.token, []byte(secret), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		c.Skipf("no keyring can be used here: %v", err)
	}
	c.cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	const list = "/proc/keys"
	if out, err := os.ReadFile(list); err != nil || !strings.Contains(string(out), c.token) {
		c.Skipf("%s does not have the key: %v", list, err)
	}
	if a := c.box().do(read(list))[0]; strings.Contains(string(a.Data), c.token) {
		c.Errorf("%s inside has the name of a key of the host", list)
	}
}
