package sysprog

import (
	"encoding/binary"
	"strings"
)

// A MountAttr is a change of mount attributes.
type MountAttr struct {
	// Set and Clear are MountAttr… flags. In a namespace made by an ordinary user, flags that
	// its mounts had from the start cannot be cleared.
	Set, Clear uint64
	// Propagation is MountPrivate, MountSlave and so on, or 0 for no change.
	Propagation uint64
}

// OpenTree opens the path as an O_PATH descriptor or, with OpenTreeClone, makes a detached
// copy of its mount. With AtEmptyPath and an empty path, it uses dir itself: a file that was
// opened and checked before is not looked up again. It needs Linux 5.2.
func (b Block) OpenTree(dir Arg, path string, f uint64) Arg { return b.OpenTreeText(dir, Str(path), f) }

// OpenTreeText is OpenTree for a path that is passed to Run: see [Program.AddText].
func (b Block) OpenTreeText(dir, path Arg, f uint64) Arg {
	return b.CallResult("open_tree", dir, path, flags(f|openTreeCloexec, openTreeNames))
}

// MoveMount attaches a mount. It needs Linux 5.2.
func (b Block) MoveMount(from Arg, fromPath string, to Arg, toPath string, f uint64) {
	b.Call("move_mount", from, Str(fromPath), to, Str(toPath), flags(f, moveMountNames))
}

// Attach attaches a mount by its descriptor.
func (b Block) Attach(mount, dir Arg, path string) {
	b.MoveMount(mount, "", dir, path, MoveMountFromEmptyPath)
}

// MountSetattr changes a mount, or with AtRecursive all mounts below as well. It needs Linux
// 5.12.
func (b Block) MountSetattr(dir Arg, path string, f uint64, attr MountAttr) {
	b.Call("mount_setattr", dir, Str(path), flags(f, atNames), attr.arg(), Const(sizeofMountAttr))
}

func (a MountAttr) arg() Arg {
	data := make([]byte, 0, sizeofMountAttr)
	for _, v := range []uint64{a.Set, a.Clear, a.Propagation, 0} {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	return Arg{Kind: KindBytes, Text: string(data), note: a.describe}
}

func (a MountAttr) describe() string {
	var parts []string
	for _, f := range []struct {
		name  string
		value uint64
		names []flagName
	}{
		{"attr_set", a.Set, mountAttrNames}, {"attr_clr", a.Clear, mountAttrNames}, {"propagation", a.Propagation, mountNames},
	} {
		if f.value != 0 {
			parts = append(parts, f.name+"="+describe(f.value, f.names))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// NewMount makes a file system of the type and returns its detached mount. An option is
// "key=value" or "key". attrs are MountAttr… flags. It needs Linux 5.2.
func (b Block) NewMount(fstype string, attrs uint64, options ...string) Arg {
	fs := b.CallResult("fsopen", Str(fstype), Named(fsopenCloexec, "FSOPEN_CLOEXEC"))
	d := b.dependent()
	for _, o := range options {
		if key, value, ok := strings.Cut(o, "="); ok {
			d.Call("fsconfig", fs, Named(fsconfigSetString, "FSCONFIG_SET_STRING"), Str(key), Str(value), Const(0))
		} else {
			d.Call("fsconfig", fs, Named(fsconfigSetFlag, "FSCONFIG_SET_FLAG"), Str(key), null(), Const(0))
		}
	}
	d.Call("fsconfig", fs, Named(fsconfigCmdCreate, "FSCONFIG_CMD_CREATE"), null(), null(), Const(0))
	mount := d.CallResult("fsmount", fs, Named(fsmountCloexec, "FSMOUNT_CLOEXEC"), flags(attrs, mountAttrNames))
	b.Close(fs)
	return mount
}

// Mount is the classic call. An empty source, type or data is passed as NULL.
func (b Block) Mount(source, target, fstype string, f uint64, data string) {
	b.Call("mount", orNull(source), Str(target), orNull(fstype), flags(f, mountNames), orNull(data))
}

func orNull(s string) Arg {
	if s == "" {
		return null()
	}
	return Str(s)
}

// PivotRoot makes newRoot the root and moves the old one to putOld. With "." for both, the old
// root is mounted over the new one, from where [Block.Umount2] removes it, and no folder for
// it is needed.
func (b Block) PivotRoot(newRoot, putOld string) { b.Call("pivot_root", Str(newRoot), Str(putOld)) }

// Umount2 detaches a mount; f is 0 or UmountDetach.
func (b Block) Umount2(path string, f uint64) { b.Call("umount2", Str(path), flags(f, umountNames)) }
