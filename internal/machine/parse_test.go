package machine

import (
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
)

const unixHeading = "Num       RefCount Protocol Flags    Type St Inode Path\n"

// entry is one line as the kernel writes it.
func entry(rest string) string {
	return "0000000012ab34cd: 00000002 00000000 00010000 0001 01 21455" + rest + "\n"
}

func TestParseUnixSockets(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", "", nil},
		{"heading only", unixHeading, nil},
		{"no path", unixHeading + entry(""), nil},
		{"path", unixHeading + entry(" /run/x.sock"), []string{"/run/x.sock"}},
		{"sorted, once", unixHeading + entry(" /run/b") + entry(" /run/a") + entry(" /run/b"), []string{"/run/a", "/run/b"}},
		{"abstract", unixHeading + entry(" @/tmp/.X11-unix/X0") + entry(" @"), nil},
		{"relative", unixHeading + entry(" run/x.sock"), nil},
		{"spaces", unixHeading + entry(" /run/a  b : c "), []string{"/run/a  b : c "}},
		{"not clean", unixHeading + entry(" /run//user/../x"), []string{"/run/x"}},
		{"not UTF-8", unixHeading + entry(" /run/\xff\xfe"), []string{"/run/\xff\xfe"}},
		{"newline", unixHeading + entry(" /run/a\nb: c") + entry(" /run/d"), []string{"/run/a\nb: c", "/run/d"}},
		{"trailing newlines", unixHeading + entry(" /run/a\n\n"), []string{"/run/a\n\n"}},
		{"newline in an abstract name", unixHeading + entry(" @a\n/run/b"), nil},
		{"short inode, padded", unixHeading + "0: 00000003 00000000 00000000 0001 03    15 /a\n", []string{"/a"}},
		{"no newline at the end", unixHeading + strings.TrimSuffix(entry(" /run/a"), "\n"), []string{"/run/a"}},
		{"not an entry", unixHeading + "junk /etc\n" + entry(" /run/a"), []string{"/run/a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseUnixSockets([]byte(tt.text)).absolute; !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// C2: which of them are for datagrams is known by their type, and by nothing in a path.
func TestParseDatagrams(t *testing.T) {
	datagram := func(rest string) string { return strings.Replace(entry(rest), " 0001 ", " 0002 ", 1) }
	text := unixHeading + entry(" /run/stream") + datagram(" /run/b") + datagram(" @x") + datagram(" rel") + datagram("") +
		datagram(" /run//a") + entry(" /run/ 0002 01") + datagram(" /run/b")
	if got := parseUnixSockets([]byte(text)).datagrams; !slices.Equal(got, []string{"/run/a", "/run/b"}) {
		t.Errorf("got %q", got)
	}
}

// C2: a socket that was bound by a relative name is found where its owner works.
func TestRelativeSockets(t *testing.T) {
	bound := parseUnixSockets([]byte(unixHeading + entry(" tmp/app.sock") + entry(" @abstract") + entry(" /run/x")))
	if !slices.Equal(bound.absolute, []string{"/run/x"}) || !slices.Equal(bound.relative, []string{"tmp/app.sock"}) {
		t.Fatalf("absolute %q, relative %q", bound.absolute, bound.relative)
	}
	tree := hostfs.Tree{"/home/ana/app/tmp/app.sock": "socket", "/srv/tmp/app.sock": "file"}
	got := findRelative(bound.relative, []string{"/home/ana", "/home/ana/app", "/srv"}, tree)
	if !slices.Equal(got, []string{"/home/ana/app/tmp/app.sock"}) {
		t.Errorf("found %q", got)
	}
}

func FuzzParseUnixSockets(f *testing.F) {
	f.Add([]byte(unixHeading+entry(" /run/a b")+entry(" @x")), "/run/x")
	f.Add([]byte(unixHeading+entry(" /run/a\n/b")), "/a\nb")
	f.Fuzz(func(t *testing.T, text []byte, p string) {
		got := parseUnixSockets(text).absolute
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("not sorted, or with duplicates: %q", got)
		}
		for _, p := range got {
			if !path.IsAbs(p) || path.Clean(p) != p {
				t.Fatalf("%q is not clean and absolute", p)
			}
		}
		// Whatever one socket is called, it and the next are found, unless its
		// name holds a newline, after which anything may follow.
		if strings.ContainsAny(p, "\n\x00") || !path.IsAbs(p) {
			return
		}
		got = parseUnixSockets([]byte(unixHeading + entry(" "+p) + entry(" /run/next"))).absolute
		if !slices.Contains(got, path.Clean(p)) || !slices.Contains(got, "/run/next") {
			t.Fatalf("%q is not in %q", p, got)
		}
	})
}

func TestParseBwrapOutput(t *testing.T) {
	if v := parseBwrapVersion("bubblewrap 0.11.0\n"); v != "0.11.0" {
		t.Errorf("version %q", v)
	}
	for _, s := range []string{"", "BusyBox v1.36", "bubblewrap", "bubblewrap 0.1 extra"} {
		if v := parseBwrapVersion(s); v != "" {
			t.Errorf("parseBwrapVersion(%q) = %q", s, v)
		}
	}
	var help strings.Builder
	help.WriteString("usage: bwrap [OPTIONS...] --overlay\n")
	for _, o := range neededOptions {
		help.WriteString("    --" + o + " FD   Something about --bind-fd\n")
	}
	has, lacks := parseBwrapOptions(help.String())
	if len(lacks) > 0 || !slices.Equal(has, neededOptions) {
		t.Errorf("has %q, lacks %q", has, lacks)
	}
	has, lacks = parseBwrapOptions("    --json-status-fd-x FD\n    --bind-fd FD DEST\n")
	if !slices.Equal(has, []string{"bind-fd"}) || !slices.Contains(lacks, "json-status-fd") {
		t.Errorf("has %q, lacks %q", has, lacks)
	}
}

func TestBwrapExitCode(t *testing.T) {
	tests := []struct {
		text     string
		code     int
		reported bool
	}{
		{"{ \"child-pid\": 12, \"pid-namespace\": 4026532181 }\n{ \"exit-code\": 0 }\n", 0, true},
		{"{ \"child-pid\": 12 }\n{ \"exit-code\": 7 }\n", 7, true},
		{"{ \"child-pid\": 12 }\n", 0, false}, // set-up or exec failed
		{"", 0, false},
		{"{ \"exit-code\": \"0\" }\n", 0, false},
		{"{ \"exit-code\": 0", 0, false},
	}
	for _, tt := range tests {
		code, reported := bwrapExitCode(strings.NewReader(tt.text))
		if code != tt.code || reported != tt.reported {
			t.Errorf("bwrapExitCode(%q) = %d, %v", tt.text, code, reported)
		}
	}
}

func fakeReader(files map[string]string) reader {
	return func(p string) ([]byte, error) {
		if s, ok := files[p]; ok {
			return []byte(s), nil
		}
		return nil, fs.ErrNotExist
	}
}

func fakeEnv(vars map[string]string) func(string) (string, bool) {
	return func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
}

// A11
func TestDetectContainer(t *testing.T) {
	tests := []struct {
		name   string
		files  map[string]string
		env    map[string]string
		kernel string
		want   string
	}{
		{name: "none", files: map[string]string{"/proc/1/cgroup": "0::/init.scope\n"}, kernel: "6.1.0-18-amd64"},
		{name: "docker", files: map[string]string{"/.dockerenv": ""}, want: "docker"},
		{name: "podman", files: map[string]string{"/run/.containerenv": "engine=\"podman-5.0\"\n"}, want: "podman"},
		{name: "variable", env: map[string]string{"container": "oci"}, want: "oci"},
		{name: "empty variable", env: map[string]string{"container": ""}},
		{name: "systemd", files: map[string]string{"/run/systemd/container": "systemd-nspawn\n"}, want: "systemd-nspawn"},
		{name: "init's variable", files: map[string]string{"/proc/1/environ": "A=1\x00container=lxc\x00B=2"}, want: "lxc"},
		{name: "init's other variable", files: map[string]string{"/proc/1/environ": "my_container=lxc\x00"}},
		{name: "cgroup of kubernetes", files: map[string]string{"/proc/1/cgroup": "0::/kubepods.slice/pod1\n"}, want: "kubernetes"},
		{name: "cgroup of docker", files: map[string]string{"/proc/1/cgroup": "4:memory:/docker/0123\n"}, want: "docker"},
		{name: "kubernetes", env: map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, want: "kubernetes"},
		{name: "flatpak", files: map[string]string{"/.flatpak-info": "", "/run/.containerenv": ""}, want: "flatpak"},
		{name: "wsl 2", kernel: "5.15.153.1-microsoft-standard-WSL2", want: "wsl"},
		{name: "docker on wsl", files: map[string]string{"/.dockerenv": ""}, kernel: "5.15-microsoft", want: "docker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := detectContainer(fakeReader(tt.files), fakeEnv(tt.env), tt.kernel); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReadOSRelease(t *testing.T) {
	if got := readOSRelease(fakeReader(map[string]string{"/usr/lib/os-release": "ID=guix"})); got != "ID=guix" {
		t.Errorf("got %q", got)
	}
	if got := readOSRelease(fakeReader(nil)); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestParseCgroups(t *testing.T) {
	text := "12:pids:/user.slice\n4:cpu,cpuacct:/\n1:name=systemd:/user.slice\n0::/user.slice/a:b.scope\nbroken\n7:x\n"
	want := []cgroupEntry{
		{controllers: []string{"pids"}, group: "/user.slice"},
		{controllers: []string{"cpu", "cpuacct"}, group: "/"},
		{group: "/user.slice/a:b.scope"},
	}
	got := parseCgroups(text)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for group, want := range map[string]string{"/": "/m", "/a/b": "/m/a/b", "/../x": "", "/..": "", "/..a": "/m/..a"} {
		for _, controllers := range [][]string{nil, {"cpu", "pids"}} {
			entries := []cgroupEntry{{controllers: []string{"memory"}, group: "/other"}, {controllers: controllers, group: group}}
			if got := groupFolder("/m", entries, strings.Join(controllers[min(1, len(controllers)):], "")); got != want {
				t.Errorf("groupFolder of %q with %q = %q, want %q", group, controllers, got, want)
			}
		}
	}
	if got := groupFolder("/m", []cgroupEntry{{group: "/a"}}, "pids"); got != "" {
		t.Errorf("a controller that no group has is in %q", got)
	}
}
