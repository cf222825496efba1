package machine

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// parseUnixSockets returns the paths in the text of /proc/net/unix, clean,
// sorted, each once: absolute ones, and those that were bound by a relative
// name. Abstract sockets ("@name") have no path and are left out.
//
// The kernel writes a path byte for byte, spaces and newlines included. A line
// that does not start like an entry is therefore taken as the rest of the path
// above it. A path made to look like an entry after its newline is read as two
// sockets: the list may name too much by this, and the prefix of such a path.
func parseUnixSockets(text []byte) (absolute, relative []string) {
	var current []byte
	flush := func() {
		switch {
		case len(current) == 0 || current[0] == '@':
		case current[0] == '/':
			absolute = append(absolute, path.Clean(string(current)))
		default:
			relative = append(relative, path.Clean(string(current)))
		}
		current = nil
	}
	_, text, _ = bytes.Cut(text, []byte("\n")) // the heading
	text = bytes.TrimSuffix(text, []byte("\n"))
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		p, ok := socketEntry(line)
		if !ok {
			if len(current) > 0 {
				current = append(append(current, '\n'), line...)
			}
			continue
		}
		flush()
		current = slices.Clone(p)
	}
	flush()
	slices.Sort(absolute)
	slices.Sort(relative)
	return slices.Compact(absolute), slices.Compact(relative)
}

// parseDatagrams returns those of the absolute paths in the text that belong to
// datagram sockets. Of a path with a newline it has the first line.
func parseDatagrams(text []byte) (paths []string) {
	datagram := []byte(" 0002 ") // the type, in hexadecimal
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if !bytes.Contains(line, datagram) {
			continue
		}
		p, ok := socketEntry(line)
		if _, rest, _ := bytes.Cut(line, []byte(": ")); ok && len(p) > 0 && p[0] == '/' && bytes.HasPrefix(rest[socketType:], datagram) {
			paths = append(paths, path.Clean(string(p)))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// findRelative returns the places of sockets that were bound by a relative name.
// The kernel does not tell whose working folder the name belongs to, so each
// folder that any process works in is tried.
func findRelative(names, folders []string, fs hostfs.FS) []string {
	var found []string
	for _, dir := range folders {
		for _, name := range names {
			p := path.Join(dir, name)
			if info, err := fs.Lstat(p); err == nil && info.Kind == host.Socket {
				found = append(found, p)
			}
		}
	}
	return found
}

// socketFields are the widths of the hexadecimal fields between an entry's
// address and its inode: reference count, protocol, flags, type, state.
var socketFields = [...]int{8, 8, 8, 4, 2}

// socketType is where, behind the address, the space before the type is.
const socketType = 8 + 1 + 8 + 1 + 8

// socketEntry returns the path of one line, empty if the socket has none, and
// whether the line is an entry:
//
//	0000000000000000: 00000002 00000000 00010000 0001 01 21455 /run/x.sock
func socketEntry(line []byte) ([]byte, bool) {
	address, rest, ok := bytes.Cut(line, []byte(": "))
	if !ok || !isHex(address) {
		return nil, false
	}
	for _, width := range socketFields {
		if len(rest) <= width || !isHex(rest[:width]) || rest[width] != ' ' {
			return nil, false
		}
		rest = rest[width+1:]
	}
	rest = bytes.TrimLeft(rest, " ") // the inode is padded on the left
	inode, p, _ := bytes.Cut(rest, []byte(" "))
	if len(inode) == 0 || len(bytes.Trim(inode, "0123456789")) > 0 {
		return nil, false
	}
	return p, true
}

func isHex(b []byte) bool {
	for _, c := range b {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return len(b) > 0
}

// A cgroupEntry is one line of /proc/self/cgroup: a hierarchy's controllers
// (none for v2) and the caller's group in it.
type cgroupEntry struct {
	controllers []string
	group       string
}

func (e cgroupEntry) unified() bool { return len(e.controllers) == 0 }

// parseCgroups reads the text of /proc/self/cgroup. Named v1 hierarchies
// ("name=systemd") control nothing and are left out.
func parseCgroups(text string) []cgroupEntry {
	var out []cgroupEntry
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !path.IsAbs(f[2]) {
			continue
		}
		e := cgroupEntry{group: f[2]}
		if f[1] != "" {
			e.controllers = strings.Split(f[1], ",")
		}
		if e.unified() && f[0] != "0" || strings.HasPrefix(f[1], "name=") {
			continue
		}
		out = append(out, e)
	}
	return out
}

// groupFolder returns the folder of a group below its hierarchy's mount point,
// or the empty string for a group outside of the cgroup namespace, which the
// kernel shows with a leading "/..".
func groupFolder(mount, group string) string {
	if group == "/.." || strings.HasPrefix(group, "/../") {
		return ""
	}
	return path.Join(mount, group)
}

// v1Controllers returns the sorted controllers of all v1 hierarchies.
func v1Controllers(entries []cgroupEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.controllers...)
	}
	slices.Sort(out)
	return out
}
