package backendtest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/policy"
)

func ownedByCaller(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

var descriptorCases = []testCase{
	{"descriptors/inherited", []string{"descriptors"}, inheritedDescriptors},
	{"descriptors/extra-files", []string{"descriptors"}, extraFiles},
}

// F11: descriptors that the caller has open do not reach the command.
func inheritedDescriptors(c *check) {
	leak, err := unix.Open(c.file(secret, c.outside, "leak"), unix.O_RDONLY, 0)
	c.must(err)
	defer unix.Close(leak)
	folder, err := unix.Open(c.outside, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	c.must(err)
	defer unix.Close(folder)
	if a := c.box().do(op{Do: "fds"})[0]; !a.OK() || len(a.List) > 0 {
		c.Errorf("descriptors %q are open inside (%s)", a.List, a.Error)
	}
}

// C1: extra files arrive, in their order, and nothing else does.
func extraFiles(c *check) {
	b := c.box()
	var files []*os.File
	for _, s := range []string{"first", "second"} {
		f, err := os.Open(c.file(s, c.outside, s))
		c.must(err)
		defer f.Close()
		files = append(files, f)
	}
	b.adjust = func(cmd *cloche.Cmd) { cmd.ExtraFiles = files }
	answers := b.do(op{Do: "fds"}, op{Do: "readfd", N: 3}, op{Do: "readfd", N: 4})
	if l := answers[0].List; len(l) != 2 || !strings.HasPrefix(string(l[0]), "3 ") || !strings.HasPrefix(string(l[1]), "4 ") {
		c.Errorf("descriptors %q are open inside (%s)", answers[0].List, answers[0].Error)
	}
	c.reads(answers[1], "first")
	c.reads(answers[2], "second")
}

var environmentCases = []testCase{
	{"env/scrubbed", []string{"env"}, scrubbedEnvironment},
	{"env/secrets", []string{"env"}, secretsInEnvironment},
	{"env/values", []string{"env"}, environmentValues},
}

// names returns the names of the variables that the probe listed. It leaves out PWD and
// the variable with the backend's name if their values are correct: a backend may add
// them.
func (c *check) names(a answer) []string {
	var out []string
	for _, kv := range a.List {
		switch name, _, _ := strings.Cut(string(kv), "="); string(kv) {
		case "PWD=" + c.ws, resolve.SandboxVariable + "=" + c.entry.Backend.Name():
		default:
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// A4 W2: exactly the allowed variables pass, and nothing is added.
func scrubbedEnvironment(c *check) {
	b := c.box(policy.PassEnv("WANTED", "ALSO_*"), policy.WithEnv("SET", "x"))
	b.environ = append(b.environ, "LANG=C", "LC_TIME=C", "TZ=UTC", "TERM=dumb", "OTHER=1", "WANTED=1", "ALSO_THIS=1", "LD_PRELOAD=/nope", "BASH_ENV=/nope")
	want := []string{"ALSO_THIS", "HOME", "LANG", "LC_TIME", "PATH", "SET", "TERM", "TZ", "WANTED"}
	if got := c.names(b.do(op{Do: "environ"})[0]); !slices.Equal(got, want) {
		c.Errorf("the variables inside are %q, want %q", got, want)
	}
	b = c.box(policy.Set("env.policy", "list"), policy.PassEnv("WANTED"))
	b.environ = append(b.environ, "WANTED=1")
	if got := c.names(b.do(op{Do: "environ"})[0]); !slices.Equal(got, []string{"WANTED"}) {
		c.Errorf("with a list of one the variables inside are %q", got)
	}
}

// A4: secrets never pass, even if they are asked for, and no visible process has them.
func secretsInEnvironment(c *check) {
	b := c.box(policy.Set("env.policy", "inherit"), policy.PassEnv("GITHUB_TOKEN", "AWS_*"))
	for _, name := range []string{
		"GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DOCKER_HOST",
		"CONTAINER_HOST", "PODMAN_HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "GPG_AGENT_INFO", "GPG_TTY", "SUDO_ASKPASS", "my_password",
	} {
		b.environ = append(b.environ, name+"="+c.token+"-value")
	}
	b.environ = append(b.environ, "PLAIN=1")
	answers := b.do(op{Do: "environ"}, op{Do: "environs"}, op{Do: "processes"})
	if !slices.Contains(c.names(answers[0]), "PLAIN") {
		c.Errorf("an ordinary variable does not pass: %q", answers[0].List)
	}
	for _, a := range answers {
		for _, env := range a.List {
			if strings.Contains(string(env), c.token+"-value") {
				c.Errorf("%s: a secret is in %q", a.op, env)
			}
		}
	}
}

// W2: values pass unchanged, byte by byte.
func environmentValues(c *check) {
	values := map[string]string{"BYTES": "\xff\xfe\x80", "LINES": "a\nb\n", "EQUALS": "a=b=c", "EMPTY": "", "SPACE": " a  b ", "DASH": "--bind"}
	b := c.box(policy.Set("env.policy", "inherit"), policy.WithEnv("SET", "\xff="))
	for n, v := range values {
		b.environ = append(b.environ, n+"="+v)
	}
	got := b.do(op{Do: "environ"})[0].List
	values["SET"] = "\xff="
	for n, v := range values {
		if !slices.Contains(got, text(n+"="+v)) {
			c.Errorf("%s=%q does not arrive: %q", n, v, got)
		}
	}
}

var socketCases = []testCase{
	{"sockets/hidden", []string{"sockets"}, hiddenSockets},
	{"sockets/granted", []string{"sockets"}, grantedSocket},
	{"sockets/abstract", []string{"sockets", "network.mode"}, abstractSocket},
}

const greeting = "hello from the host"

// listen listens at an address of the host and greets each client.
func (c *check) listen(network, address string) net.Listener {
	l, err := net.Listen(network, address)
	if err != nil {
		c.Skipf("cannot listen at %s: %v", address, err)
	}
	go greet(l, greeting)
	c.cleanup(func() { _ = l.Close() })
	return l
}

// shortDir makes a folder with a short name: the path of a socket has at most
// 108 bytes.
func (c *check) shortDir() string {
	dir, err := os.MkdirTemp("", "cl")
	c.must(err)
	c.cleanup(func() { os.RemoveAll(dir) })
	dir, err = filepath.EvalSymlinks(dir)
	c.must(err)
	return dir
}

// C2: no socket of the host can be reached, in any folder.
func hiddenSockets(c *check) {
	short := c.shortDir()
	ws, shown := c.dir(short, "ws"), c.dir(short, "shown")
	var ops []op
	for _, p := range []string{ws + "/s", ws + "/d/s", shown + "/s", short + "/s", "/tmp/" + c.token} {
		c.must(os.MkdirAll(filepath.Dir(p), 0o755))
		c.listen("unix", p)
		ops = append(ops, dial(p))
	}
	c.must(os.Symlink(ws+"/s", ws+"/link"))
	packets, err := net.ListenPacket("unixgram", ws+"/gram")
	c.must(err)
	defer func() { _ = packets.Close() }()
	ops = append(ops, dial(ws+"/link"), dial("/proc/self/cwd/s"), datagram("unixgram", ws+"/gram", "x"))
	b := c.box(policy.AllowRead(shown))
	b.workspace = ws
	c.refused(b.do(ops...)...)
}

// C2: a granted socket can be reached, and a socket whose name only begins with the
// same characters cannot.
func grantedSocket(c *check) {
	short := c.shortDir()
	ws, elsewhere := c.dir(short, "ws"), c.dir(short, "else")
	for _, p := range []string{ws + "/s", ws + "/s2", elsewhere + "/s", elsewhere + "/s2"} {
		c.listen("unix", p)
	}
	b := c.box(policy.AllowSocket(ws+"/s", elsewhere+"/s"))
	b.workspace = ws
	answers := b.do(dial(ws+"/s"), dial(elsewhere+"/s"), dial(ws+"/s2"), dial(elsewhere+"/s2"), on("unlink", ws+"/s"))
	c.reads(answers[0], greeting)
	c.reads(answers[1], greeting)
	c.refused(answers[2:]...)
}

// C3: the host's abstract sockets cannot be reached, because they belong to another
// network namespace.
func abstractSocket(c *check) {
	name := "@" + c.token
	c.listen("unix", name)
	for _, mode := range []policy.NetworkMode{policy.NetworkNone, policy.NetworkLoopback} {
		c.refused(c.box(policy.WithNetwork(mode)).do(dial(name))...)
	}
}
