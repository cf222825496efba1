//go:build amd64 || arm64

package sysprog

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// headers are the numbers of x/sys, which are generated from the kernel's.
var headers = map[string]uint64{
	"bind":                    unix.SYS_BIND,
	"capset":                  unix.SYS_CAPSET,
	"chdir":                   unix.SYS_CHDIR,
	"clock_nanosleep":         unix.SYS_CLOCK_NANOSLEEP,
	"clone3":                  unix.SYS_CLONE3,
	"close":                   unix.SYS_CLOSE,
	"close_range":             unix.SYS_CLOSE_RANGE,
	"connect":                 unix.SYS_CONNECT,
	"dup3":                    unix.SYS_DUP3,
	"execve":                  unix.SYS_EXECVE,
	"execveat":                unix.SYS_EXECVEAT,
	"exit_group":              unix.SYS_EXIT_GROUP,
	"fchdir":                  unix.SYS_FCHDIR,
	"fchmodat":                unix.SYS_FCHMODAT,
	"fcntl":                   unix.SYS_FCNTL,
	"fsconfig":                unix.SYS_FSCONFIG,
	"fsmount":                 unix.SYS_FSMOUNT,
	"fsopen":                  unix.SYS_FSOPEN,
	"getpid":                  unix.SYS_GETPID,
	"ioctl":                   unix.SYS_IOCTL,
	"kill":                    unix.SYS_KILL,
	"landlock_add_rule":       unix.SYS_LANDLOCK_ADD_RULE,
	"landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET,
	"landlock_restrict_self":  unix.SYS_LANDLOCK_RESTRICT_SELF,
	"listen":                  unix.SYS_LISTEN,
	"memfd_create":            unix.SYS_MEMFD_CREATE,
	"mkdirat":                 unix.SYS_MKDIRAT,
	"mknodat":                 unix.SYS_MKNODAT,
	"mount":                   unix.SYS_MOUNT,
	"mount_setattr":           unix.SYS_MOUNT_SETATTR,
	"move_mount":              unix.SYS_MOVE_MOUNT,
	"open_tree":               unix.SYS_OPEN_TREE,
	"openat":                  unix.SYS_OPENAT,
	"openat2":                 unix.SYS_OPENAT2,
	"personality":             unix.SYS_PERSONALITY,
	"pidfd_open":              unix.SYS_PIDFD_OPEN,
	"pipe2":                   unix.SYS_PIPE2,
	"pivot_root":              unix.SYS_PIVOT_ROOT,
	"prctl":                   unix.SYS_PRCTL,
	"prlimit64":               unix.SYS_PRLIMIT64,
	"read":                    unix.SYS_READ,
	"rt_sigaction":            unix.SYS_RT_SIGACTION,
	"rt_sigprocmask":          unix.SYS_RT_SIGPROCMASK,
	"seccomp":                 unix.SYS_SECCOMP,
	"sendmsg":                 unix.SYS_SENDMSG,
	"setgroups":               unix.SYS_SETGROUPS,
	"sethostname":             unix.SYS_SETHOSTNAME,
	"setns":                   unix.SYS_SETNS,
	"setresgid":               unix.SYS_SETRESGID,
	"setresuid":               unix.SYS_SETRESUID,
	"setsid":                  unix.SYS_SETSID,
	"socket":                  unix.SYS_SOCKET,
	"statx":                   unix.SYS_STATX,
	"symlinkat":               unix.SYS_SYMLINKAT,
	"umask":                   unix.SYS_UMASK,
	"umount2":                 unix.SYS_UMOUNT2,
	"unshare":                 unix.SYS_UNSHARE,
	"write":                   unix.SYS_WRITE,
}

func TestNumbersMatchHeaders(t *testing.T) {
	for _, c := range calls {
		if got, _ := hostArch.number(c.name); got != headers[c.name] {
			t.Errorf("%s on %s is %d, want %d", c.name, hostArch, got, headers[c.name])
		}
	}
}

func TestErrnoNamesMatchHeaders(t *testing.T) {
	for n := 1; n < len(errnoNames); n++ {
		if want := unix.ErrnoName(syscall.Errno(n)); errnoNames[n] != want && errnoNames[n] != "EOPNOTSUPP" && errnoNames[n] != "EUCLEAN" {
			t.Errorf("%d is %q, want %q", n, errnoNames[n], want)
		}
	}
}

func TestFlagsMatchHeaders(t *testing.T) {
	for f, want := range map[OpenFlag]uint64{
		OpenDirectory: unix.O_DIRECTORY, OpenNoFollow: unix.O_NOFOLLOW, OpenPath: unix.O_PATH, OpenCloexec: unix.O_CLOEXEC,
		OpenCreate: unix.O_CREAT, OpenExclusive: unix.O_EXCL, OpenTruncate: unix.O_TRUNC, OpenNonblock: unix.O_NONBLOCK,
		OpenDirect: unix.O_DIRECT,
	} {
		if got := hostArch.openFlags(f); got != want {
			t.Errorf("%s is %#x, want %#x", describe(uint64(f), openNames), got, want)
		}
	}
	for i, f := range []struct{ got, want uint64 }{
		{NewMount, unix.CLONE_NEWNS},
		{NewCgroup, unix.CLONE_NEWCGROUP},
		{NewUTS, unix.CLONE_NEWUTS},
		{NewIPC, unix.CLONE_NEWIPC},
		{NewUser, unix.CLONE_NEWUSER},
		{NewPID, unix.CLONE_NEWPID},
		{NewNetwork, unix.CLONE_NEWNET},
		{cloneVM, unix.CLONE_VM},
		{clonePidFD, unix.CLONE_PIDFD},
		{cloneVfork, unix.CLONE_VFORK},
		{cloneParent, unix.CLONE_PARENT},
		{cloneParentSetTID, unix.CLONE_PARENT_SETTID}, {cloneClearSighand, unix.CLONE_CLEAR_SIGHAND},
		{AtEmptyPath, unix.AT_EMPTY_PATH},
		{AtSymlinkNoFollow, unix.AT_SYMLINK_NOFOLLOW},
		{MoveMountFromEmptyPath, unix.MOVE_MOUNT_F_EMPTY_PATH},
		{MoveMountToEmptyPath, unix.MOVE_MOUNT_T_EMPTY_PATH},
		{dupCloexec, unix.F_DUPFD_CLOEXEC},
		{ioctlSetIfFlags, unix.SIOCSIFFLAGS},
		{prSetNoNewPrivs, unix.PR_SET_NO_NEW_PRIVS},
		{prCapBsetDrop, unix.PR_CAPBSET_DROP},
		{prSetMDWE, unix.PR_SET_MDWE},
		{capabilityVersion3, unix.LINUX_CAPABILITY_VERSION_3},
		{MountAttrIDMap, unix.MOUNT_ATTR_IDMAP},
		{MountAttrNoSymFollow, unix.MOUNT_ATTR_NOSYMFOLLOW},
		{openTreeCloexec | OpenTreeClone, unix.OPEN_TREE_CLOEXEC | unix.OPEN_TREE_CLONE},
	} {
		if f.got != f.want {
			t.Errorf("row %d: %#x, want %#x", i, f.got, f.want)
		}
	}
}
