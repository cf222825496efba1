package sysprog

import (
	"fmt"
	"strings"
)

// An OpenFlag is a flag of openat, with the numbers of amd64 on every platform.
type OpenFlag uint64

// The flags of openat.
const (
	OpenRead      OpenFlag = 0
	OpenWrite     OpenFlag = 0x1
	OpenReadWrite OpenFlag = 0x2
	OpenCreate    OpenFlag = 0x40
	OpenExclusive OpenFlag = 0x80
	OpenTruncate  OpenFlag = 0x200
	OpenNonblock  OpenFlag = 0x800
	OpenDirect    OpenFlag = 0x4000
	OpenLargeFile OpenFlag = 0x8000
	OpenDirectory OpenFlag = 0x10000
	OpenNoFollow  OpenFlag = 0x20000
	OpenCloexec   OpenFlag = 0x80000
	OpenPath      OpenFlag = 0x200000
)

// Restrictions for [Block.Openat2].
const (
	ResolveNoXDev       = 0x01
	ResolveNoMagicLinks = 0x02
	ResolveNoSymlinks   = 0x04
	ResolveBeneath      = 0x08
	ResolveInRoot       = 0x10
)

// The flags that make a namespace, for Options.CloneFlags, [Block.Unshare],
// [Block.Setns] and [Block.Fork].
const (
	NewMount   = 0x20000
	NewCgroup  = 0x2000000
	NewUTS     = 0x4000000
	NewIPC     = 0x8000000
	NewUser    = 0x10000000
	NewPID     = 0x20000000
	NewNetwork = 0x40000000
)

// Further clone flags, which the package uses itself.
const (
	cloneVM           = 0x100
	cloneFiles        = 0x400
	clonePidFD        = 0x1000
	cloneVfork        = 0x4000
	cloneParent       = 0x8000
	cloneParentSetTID = 0x100000
	sigchld           = 17

	// Only for clone3, Linux 5.5; and its struct clone_args, of Linux 5.7.
	cloneClearSighand    = 0x100000000
	sizeofCloneArgs      = 88
	offsetCloneParentTID = 24
)

// Flags of calls that take a descriptor and a path.
const (
	AtSymlinkNoFollow = 0x100
	AtEmptyPath       = 0x1000
	AtRecursive       = 0x8000
)

// Flags of the calls about mounts.
const (
	OpenTreeClone = 1

	MoveMountFromEmptyPath = 0x4
	MoveMountToEmptyPath   = 0x40

	MountAttrReadOnly    = 0x1
	MountAttrNoSuid      = 0x2
	MountAttrNoDev       = 0x4
	MountAttrNoExec      = 0x8
	MountAttrNoAtime     = 0x10
	MountAttrIDMap       = 0x100000
	MountAttrNoSymFollow = 0x200000

	MountReadOnly  = 0x1
	MountNoSuid    = 0x2
	MountNoDev     = 0x4
	MountNoExec    = 0x8
	MountRemount   = 0x20
	MountBind      = 0x1000
	MountRecursive = 0x4000

	MountUnbindable = 0x20000
	MountPrivate    = 0x40000
	MountSlave      = 0x80000
	MountShared     = 0x100000

	UmountDetach = 2
)

// Flags of [Block.Seccomp].
const (
	SeccompLog              = 0x2
	SeccompSpecAllow        = 0x4
	SeccompWaitKillableRecv = 0x20

	seccompNewListener = 0x8
)

const (
	openTreeCloexec    = 0x80000
	closeRangeCloexec  = 0x4
	fdMax              = 0xffffffff
	dupCloexec         = 1030
	socketCloexec      = 0x80000
	socketLevel        = 1 // SOL_SOCKET
	socketRights       = 1 // SCM_RIGHTS
	msgNoSignal        = 0x4000
	fsopenCloexec      = 1
	fsmountCloexec     = 1
	fsconfigSetFlag    = 0
	fsconfigSetString  = 1
	fsconfigCmdCreate  = 6
	seccompSetFilter   = 1
	sigSetMask         = 2
	sigKill, sigStop   = 9, 19
	lastSignal         = 64
	sizeofSigset       = 8
	sizeofMountAttr    = 32
	sizeofOpenHow      = 24
	atStatxDontSync    = 0x4000
	statxIno           = 0x100
	sizeofStatx        = 256
	offsetStatxIno     = 32
	offsetStatxDev     = 136
	sizeofSockFilter   = 8
	maxFilter          = 4096
	ioctlSetIfFlags    = 0x8914
	prSetDeathSignal   = 1
	prSetDumpable      = 4
	prCapBsetDrop      = 24
	prSetMM            = 35
	prSetNoNewPrivs    = 38
	prSetTHPDisable    = 41
	prCapAmbient       = 47
	prCapAmbientClear  = 4
	prSetMDWE          = 65
	capabilityVersion3 = 0x20080522
	highestCapability  = 63 // the sets of capset have 64 bits
)

type flagName struct {
	bit  uint64
	name string
}

var (
	cloneNames = []flagName{
		{cloneVM, "CLONE_VM"}, {cloneVfork, "CLONE_VFORK"}, {cloneParent, "CLONE_PARENT"},
		{cloneParentSetTID, "CLONE_PARENT_SETTID"},
		{NewUser, "CLONE_NEWUSER"}, {NewMount, "CLONE_NEWNS"}, {NewPID, "CLONE_NEWPID"}, {NewIPC, "CLONE_NEWIPC"},
		{NewUTS, "CLONE_NEWUTS"}, {NewNetwork, "CLONE_NEWNET"}, {NewCgroup, "CLONE_NEWCGROUP"},
	}
	openNames = []flagName{
		{uint64(OpenWrite), "O_WRONLY"}, {uint64(OpenReadWrite), "O_RDWR"}, {uint64(OpenCreate), "O_CREAT"},
		{uint64(OpenExclusive), "O_EXCL"}, {uint64(OpenTruncate), "O_TRUNC"}, {uint64(OpenNonblock), "O_NONBLOCK"},
		{uint64(OpenDirect), "O_DIRECT"}, {uint64(OpenLargeFile), "O_LARGEFILE"}, {uint64(OpenDirectory), "O_DIRECTORY"},
		{uint64(OpenNoFollow), "O_NOFOLLOW"}, {uint64(OpenPath), "O_PATH"}, {uint64(OpenCloexec), "O_CLOEXEC"},
	}
	resolveNames = []flagName{
		{ResolveNoXDev, "RESOLVE_NO_XDEV"}, {ResolveNoMagicLinks, "RESOLVE_NO_MAGICLINKS"},
		{ResolveNoSymlinks, "RESOLVE_NO_SYMLINKS"}, {ResolveBeneath, "RESOLVE_BENEATH"}, {ResolveInRoot, "RESOLVE_IN_ROOT"},
	}
	atNames = []flagName{
		{AtSymlinkNoFollow, "AT_SYMLINK_NOFOLLOW"}, {AtEmptyPath, "AT_EMPTY_PATH"}, {AtRecursive, "AT_RECURSIVE"},
	}
	openTreeNames = append([]flagName{
		{OpenTreeClone, "OPEN_TREE_CLONE"}, {openTreeCloexec, "OPEN_TREE_CLOEXEC"},
	}, atNames...)
	moveMountNames = []flagName{
		{MoveMountFromEmptyPath, "MOVE_MOUNT_F_EMPTY_PATH"}, {MoveMountToEmptyPath, "MOVE_MOUNT_T_EMPTY_PATH"},
	}
	mountAttrNames = []flagName{
		{MountAttrReadOnly, "MOUNT_ATTR_RDONLY"}, {MountAttrNoSuid, "MOUNT_ATTR_NOSUID"}, {MountAttrNoDev, "MOUNT_ATTR_NODEV"},
		{MountAttrNoExec, "MOUNT_ATTR_NOEXEC"}, {MountAttrNoAtime, "MOUNT_ATTR_NOATIME"}, {MountAttrIDMap, "MOUNT_ATTR_IDMAP"},
		{MountAttrNoSymFollow, "MOUNT_ATTR_NOSYMFOLLOW"},
	}
	mountNames = []flagName{
		{MountReadOnly, "MS_RDONLY"}, {MountNoSuid, "MS_NOSUID"}, {MountNoDev, "MS_NODEV"}, {MountNoExec, "MS_NOEXEC"},
		{MountRemount, "MS_REMOUNT"}, {MountBind, "MS_BIND"}, {MountRecursive, "MS_REC"}, {MountUnbindable, "MS_UNBINDABLE"},
		{MountPrivate, "MS_PRIVATE"}, {MountSlave, "MS_SLAVE"}, {MountShared, "MS_SHARED"},
	}
	umountNames  = []flagName{{UmountDetach, "MNT_DETACH"}}
	seccompNames = []flagName{
		{SeccompLog, "SECCOMP_FILTER_FLAG_LOG"}, {SeccompSpecAllow, "SECCOMP_FILTER_FLAG_SPEC_ALLOW"},
		{seccompNewListener, "SECCOMP_FILTER_FLAG_NEW_LISTENER"},
		{SeccompWaitKillableRecv, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"},
	}
)

// describe returns the names of the flags; bits without a name are printed as a number.
func describe(v uint64, names []flagName) string {
	var parts []string
	for _, n := range names {
		if v&n.bit != 0 {
			parts = append(parts, n.name)
			v &^= n.bit
		}
	}
	if v != 0 || len(parts) == 0 {
		parts = append(parts, number(v))
	}
	return strings.Join(parts, "|")
}

// number prints small and negative numbers in decimal, and others in hexadecimal.
func number(v uint64) string {
	if s := int64(v); s > -4096 && s < 4096 {
		return fmt.Sprint(s)
	}
	return fmt.Sprintf("%#x", v)
}

func flags(v uint64, names []flagName) Arg {
	return Arg{Value: v, note: func() string { return describe(v, names) }}
}

// mode returns an argument that is printed in octal.
func mode(m uint32) Arg {
	return Arg{Value: uint64(m), note: func() string { return fmt.Sprintf("%#o", m) }}
}
