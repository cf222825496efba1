package machine

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

// unixSockets are the paths in /proc/net/unix, cleaned, sorted and without duplicates:
// the absolute ones, those of datagram sockets among them, and the names of sockets
// that were bound with a relative name. Abstract sockets ("@name") have no path and are
// left out.
type unixSockets struct{ absolute, datagrams, relative []string }

// parseUnixSockets reads the text of /proc/net/unix.
//
// The kernel writes a path unescaped, with its spaces and newlines. So a line that does
// not start like an entry is taken as the rest of the path before it. A path that looks
// like an entry after its newline is read as two sockets: the list may then contain
// paths that do not exist, among them the beginning of that path.
func parseUnixSockets(text []byte) (bound unixSockets) {
	var current []byte
	var datagram bool
	flush := func() {
		switch {
		case len(current) == 0 || current[0] == '@':
		case current[0] == '/':
			p := path.Clean(string(current))
			bound.absolute = append(bound.absolute, p)
			if datagram {
				bound.datagrams = append(bound.datagrams, p)
			}
		default:
			bound.relative = append(bound.relative, path.Clean(string(current)))
		}
	}
	_, text, _ = bytes.Cut(text, []byte("\n")) // the heading
	text = bytes.TrimSuffix(text, []byte("\n"))
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if p, isDatagram, ok := socketEntry(line); ok {
			flush()
			current, datagram = slices.Clone(p), isDatagram
		} else if len(current) > 0 {
			current = append(append(current, '\n'), line...)
		}
	}
	flush()
	bound.absolute, bound.datagrams, bound.relative = sortedSet(bound.absolute), sortedSet(bound.datagrams), sortedSet(bound.relative)
	return bound
}

// findRelative returns the paths of sockets that were bound with a relative name. The
// kernel does not report the working folder that the name is relative to, so the
// working folders of all processes are tried.
func findRelative(names, folders []string, fs hostfs.FS) []string {
	var found []string
	for _, dir := range folders {
		for _, name := range names {
			p := path.Join(dir, name)
			if info, err := fs.Lstat(p); err == nil && info.Kind == hostfs.Socket {
				found = append(found, p)
			}
		}
	}
	return found
}

// socketFields are the lengths of the hexadecimal fields between an entry's address and
// its inode: reference count, protocol, flags, type, state.
var socketFields = [...]int{8, 8, 8, 4, 2}

const typeField = 3

// socketEntry returns the path of one line, empty if the socket has none, whether it
// is for datagrams, and whether the line is an entry:
//
//	0000000000000000: 00000002 00000000 00010000 0001 01 21455 /run/x.sock
func socketEntry(line []byte) (p []byte, datagram, ok bool) {
	address, rest, ok := bytes.Cut(line, []byte(": "))
	if !ok || !isHex(address) {
		return nil, false, false
	}
	for i, width := range socketFields {
		if len(rest) <= width || !isHex(rest[:width]) || rest[width] != ' ' {
			return nil, false, false
		}
		if i == typeField {
			datagram = string(rest[:width]) == "0002"
		}
		rest = rest[width+1:]
	}
	rest = bytes.TrimLeft(rest, " ") // the inode is padded on the left
	inode, p, _ := bytes.Cut(rest, []byte(" "))
	if len(inode) == 0 || len(bytes.Trim(inode, "0123456789")) > 0 {
		return nil, false, false
	}
	return p, datagram, true
}

func isHex(b []byte) bool {
	for _, c := range b {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return len(b) > 0
}

// A cgroupEntry is one line of /proc/self/cgroup: the controllers of a hierarchy (none
// for v2), and the caller's group in it.
type cgroupEntry struct {
	controllers []string
	group       string
}

// parseCgroups reads the text of /proc/self/cgroup. Named v1 hierarchies
// ("name=systemd") have no controllers and are left out.
func parseCgroups(text string) []cgroupEntry {
	var out []cgroupEntry
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(f) != 3 || !path.IsAbs(f[2]) || strings.HasPrefix(f[1], "name="):
		case f[1] != "":
			out = append(out, cgroupEntry{controllers: strings.Split(f[1], ","), group: f[2]})
		case f[0] == "0":
			out = append(out, cgroupEntry{group: f[2]})
		}
	}
	return out
}

// groupFolder returns the folder of the caller's group in the hierarchy that is mounted at
// mount: the one with the controller, or the v2 group if controller is empty. It returns ""
// if there is none, or if the group is outside the cgroup namespace, which the kernel shows
// as a leading "/..".
func groupFolder(mount string, entries []cgroupEntry, controller string) string {
	for _, e := range entries {
		if slices.Contains(e.controllers, controller) || controller == "" && len(e.controllers) == 0 {
			if e.group == "/.." || strings.HasPrefix(e.group, "/../") {
				return ""
			}
			return path.Join(mount, e.group)
		}
	}
	return ""
}
