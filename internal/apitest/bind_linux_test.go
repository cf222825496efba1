package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// bindScript binds sockets in the working directory in many ways and prints
// what came of it. It must print the same inside as outside.
const bindScript = `
import errno, multiprocessing.connection, os, socket, stat, sys, threading
os.umask(0o027)
def bind(what, name, kind=socket.SOCK_STREAM, mode=None):
    s = socket.socket(socket.AF_UNIX, kind)
    if mode is not None: os.fchmod(s.fileno(), mode)
    try:
        s.bind(name)
    except OSError as e:
        print(what, errno.errorcode[e.errno] if e.errno else e)
        return s
    got = s.getsockname()
    print(what, "name kept" if got == name else "name %r" % (got,))
    if isinstance(name, str):
        st = os.lstat(name)
        print(what, stat.filemode(st.st_mode), st.st_uid == os.geteuid(), st.st_gid == os.getegid())
    return s
here = os.getcwd()
os.makedirs("d/e"); os.symlink("d", "link"); os.symlink(here + "/d", "abs"); os.symlink("nothing", "dangling"); open("file", "w").close()
bind("relative", "a")
bind("in a directory", "d/a")
bind("dotted", "./d/../d/./b")
bind("absolute", here + "/b")
bind("by a link", "link/c")
bind("by an absolute link", "abs/d")
bind("by a link, absolute", here + "/link/f")
bind("packets", "seq", socket.SOCK_SEQPACKET)
bind("mode", "mode", mode=0o600)
s = bind("again", "x")
try: s.bind("y")
except OSError as e: print("twice", errno.errorcode[e.errno], os.path.lexists("y"))
bind("used", "a")
bind("a file", "file")
bind("a link", "dangling")
bind("a directory", "d")
bind("dot", "d/.")
bind("slash", "d/")
bind("new with a slash", "new/")
bind("missing", "none/a")
bind("below a file", "file/a")
private = "/tmp/" + os.path.basename(here) + ".s"
p = socket.socket(socket.AF_UNIX); p.bind(private) # inside, this /tmp is another one
p.listen(); c = socket.socket(socket.AF_UNIX); c.connect(private); c.send(b"x"); print("private", p.accept()[0].recv(1), stat.filemode(os.lstat(private).st_mode)); os.unlink(private)
bind("abstract", b"\0cloche-bind-" + str(os.getpid()).encode())
s = socket.socket(socket.AF_UNIX); s.bind(""); print("autobind", len(s.getsockname()))
long = "l" * 107
bind("longest", long)
os.mkdir("u"); os.chdir("u"); bind("up", "../up"); os.chdir("..")
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone"); bind("no directory", "a"); os.chdir(here)
i = socket.socket(); i.bind(("127.0.0.1", 0)); print("internet", i.getsockname()[0])
try: socket.socket().bind(("192.0.2.1", 0))
except OSError as e: print("foreign", errno.errorcode[e.errno])
f = os.open("file", os.O_RDONLY)
try: socket.socket(fileno=os.dup(f)).bind("z")
except OSError as e: print("no socket", errno.errorcode[e.errno])
with multiprocessing.connection.Listener(here + "/mp", "AF_UNIX") as l:
    t = threading.Thread(target=lambda: multiprocessing.connection.Client(l.address).send("hello"))
    t.start(); print("listener", l.accept().recv()); t.join()
os.unlink("a"); bind("after removal", "a")
os.rename("b", "renamed"); c = socket.socket(socket.AF_UNIX)
try: c.connect("renamed")
except OSError as e: print("closed", errno.errorcode[e.errno])
print(sorted(n for n in os.listdir(".") if stat.S_ISSOCK(os.lstat(n).st_mode)))
`

// F1: a program that binds sockets in the workspace finds the same inside as
// outside: names, modes, owners and errors.
func TestBindAsOutside(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "python3")...)
			t.Parallel()
			outside := exec.Command("python3", "-c", bindScript)
			outside.Dir = shortDir(t)
			want, err := outside.CombinedOutput()
			if err != nil {
				t.Fatalf("outside: %v: %s", err, want)
			}
			ws := shortDir(t)
			cmd := cloche.Command(t.Context(), policy.Workspace(ws).With(policy.WithBackend(name), policy.ProtectPaths("**/.envrc")), "python3", "-c", bindScript)
			cmd.Dir = ws
			r, err := cmd.Capture()
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Stdout) + string(r.Stderr); got != string(want) {
				t.Errorf("inside:\n%s\noutside:\n%s", got, want)
			}
		})
	}
}

// N8: a socket is a new name like any other: where a rule protects the name, none
// can be bound to it.
func TestBindProtected(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, needs := range gitBackends {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, append(needs, "python3")...)
			ws := shortDir(t)
			cmd := cloche.Command(t.Context(), policy.Workspace(ws).With(policy.WithBackend(name), policy.ProtectPaths("**/.envrc")), "python3", "-c", `import socket; socket.socket(socket.AF_UNIX).bind(".envrc")`)
			cmd.Dir = ws
			r, err := cmd.Capture()
			if r == nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(ws, ".envrc")); err == nil || !strings.Contains(string(r.Stderr), "PermissionError") || len(r.Denied) != 1 {
				t.Errorf("there is one: %v; it said %s, denied %v", err == nil, r.Stderr, r.Denied)
			}
		})
	}
}

// F1: real programs that listen on a socket in the workspace work, and their
// clients find them.
func TestProgramsBind(t *testing.T) {
	testenv.AlsoAsUser(t)
	programs := map[string]string{
		"node": `node -e '
			const net = require("net"), path = process.cwd() + "/node.sock"
			const server = net.createServer(s => s.end("hello")).listen(path, () => {
				if (server.address() !== path) console.log("address", server.address())
				net.connect("node.sock").on("data", d => { console.log(String(d)); server.close() })
			})'`,
		"tmux":      `tmux -S ./tmux.sock new-session -d "echo hello >t; sleep 60"; while ! grep -s hello t; do sleep 0.05; done; tmux -S "$PWD/tmux.sock" kill-server`,
		"ssh-agent": `eval "$(ssh-agent -a "$PWD/agent.sock")" >/dev/null; ssh-add -l | grep -q "no identities" && echo hello; kill $SSH_AGENT_PID`,
		"gpg-agent": `mkdir -m 700 g; export GNUPGHOME=$PWD/g; gpg-agent --daemon --use-standard-socket >/dev/null 2>&1; gpg-connect-agent --no-autostart /bye && test -S g/S.gpg-agent && echo hello; gpgconf --kill gpg-agent`,
		"socat":     `socat UNIX-LISTEN:s.sock SYSTEM:"echo hello" & while ! test -S s.sock; do sleep 0.05; done; socat - UNIX-CONNECT:./s.sock; wait`,
	}
	for name, needs := range gitBackends {
		for program, script := range programs {
			t.Run(name+"/"+program, func(t *testing.T) {
				testenv.Need(t, append(needs, program)...)
				t.Parallel()
				ws := shortDir(t)
				cmd := cloche.Command(t.Context(), policy.Workspace(ws).With(policy.WithBackend(name), policy.ProtectPaths("**/.envrc")), "sh", "-c", script)
				cmd.Dir = ws
				r, err := cmd.Capture()
				if r == nil {
					t.Fatal(err)
				}
				if !r.Success() || strings.TrimSpace(string(r.Stdout)) != "hello" {
					t.Errorf("status %d: %s%s, denied %v", r.ExitCode, r.Stdout, r.Stderr, r.Denied)
				}
			})
		}
	}
}
