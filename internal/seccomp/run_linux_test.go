//go:build linux && (amd64 || arm64)

package seccomp

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// shell runs a script under the filter for o; nil is no filter.
func shell(t *testing.T, o *Options, script string) result {
	t.Helper()
	return child(t, childJob{Options: o, Argv: []string{"sh", "-euc", script}})
}

// programs are scripts that must do the same with the filter as without.
var programs = map[string]string{
	"shell": `
		mkdir d; echo hello > d/f; cat d/f | tr a-z A-Z
		cp -a d e; tar cf - e | tar tf -; mkfifo p; ls
		(sleep 0.01; echo late) & wait
		chmod g+s d; install -d -m 2775 s; chmod 755 d/f; chmod u+x d/f`,
	"git": `
		git init -q r; cd r; git config user.name a; git config user.email a@b.invalid
		echo x > f; git add f; git commit -q -m first; git log --format=%s; git status --short; git gc -q`,
	"python3": `
		python3 - <<-'END'
			import asyncio, multiprocessing, os, socket, subprocess, tempfile, threading
			print(subprocess.check_output(["echo", "child"]))
			t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
			a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(9))
			print(len(socket.if_nameindex()) > 0, socket.getaddrinfo("127.0.0.1", 80)[0][4])
			with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))
			tempfile.TemporaryFile().write(b"x")
			asyncio.run(asyncio.sleep(0)); os.memfd_create("m")
			s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname()).close()
		END`,
	"node": `
		node -e '
			const { Worker } = require("worker_threads");
			console.log(require("child_process").execSync("echo child").toString());
			require("fs").promises.writeFile("f", "x").then(() => {
				console.log("written");
				new Worker("0", { eval: true }).on("exit", () => {
					console.log("worked");
					require("http").createServer().listen(0, "127.0.0.1", function () { this.close(); console.log("listened"); });
				});
			});'`,
	"gcc": `
		printf '#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *p) { puts("thread"); return p; }
		int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); return 0; }\n' > m.c
		gcc -O1 -pthread -o m m.c; ./m`,
	"strace":  `strace -f -o log sh -c 'true & wait'; grep -c exited log`,
	"gdb":     `gdb -q -batch -nx -ex run --args true > log 2>&1; grep -c "exited normally" log`,
	"setarch": `setarch "$(uname -m)" -R echo fixed; setarch linux32 uname -m > arch; test -s arch`,
	"ss":      `ss -tan > log; head -c 5 log`,
	"getent":  `getent hosts 127.0.0.1; getent passwd root`,
	"perl":    `perl -e 'my $p = fork // die; exit 3 unless $p; waitpid $p, 0; print $? >> 8, "\n"'`,
	"make":    `printf 'all: a b\na b:\n\t@echo made\n' > Makefile; make -s -j2`,
	"openssl": `printf x | openssl dgst -sha256`,
	"setpriv": `setpriv --no-new-privs echo tightened`,
	"sqlite3": `sqlite3 db 'create table t(x); insert into t values(7); select x from t;'`,
	"java":    `java -version 2>&1 | wc -l`,
}

// Common programs do not notice the filter. // N4
func TestProgramsWork(t *testing.T) {
	for name, script := range programs {
		t.Run(name, func(t *testing.T) {
			if name != "shell" {
				testenv.Need(t, name)
			}
			bare := shell(t, nil, script)
			if bare.code != 0 {
				t.Fatalf("fails without the filter too: %s", bare.stderr)
			}
			got := shell(t, &Options{}, script)
			if got.code != 0 || got.stdout != bare.stdout {
				t.Errorf("status %d (signal %v), output %q, want %q; it said: %s", got.code, got.signal, got.stdout, bare.stdout, got.stderr)
			}
		})
	}
}

// A program that is denied something says so in the usual words.
func TestDenialsReadWell(t *testing.T) {
	for _, c := range []struct{ tool, script, want string }{
		{"chmod", `: > f; chmod u+s f`, "Operation not permitted"},
		{"unshare", `unshare -U true`, "Operation not permitted"},
	} {
		testenv.Need(t, c.tool)
		if r := shell(t, &Options{}, c.script); r.code == 0 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, said %q, want a failure with %q", c.script, r.code, r.stderr, c.want)
		}
	}
}

// Each option opens or closes what it says on the real kernel.
func TestOptionsOnKernel(t *testing.T) {
	for _, c := range []struct {
		name, script string
		open, closed Options
	}{
		{"namespaces", `unshare -U true`, Options{AllowNamespaces: true}, Options{}},
		{"mounts", `unshare -Urm mount -t tmpfs none /tmp`, Options{AllowNamespaces: true}, Options{}},
		{"setuid", `: > f; chmod 4755 f`, Options{AllowSetuidBits: true}, Options{}},
		{"setgid", `mkdir d; chmod 2755 d`, Options{}, Options{DenySetgidBits: true}},
		{"inet", `python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)'`, Options{}, Options{DenyInet: true}},
		{"unix", `python3 -c 'import socket; socket.socket(socket.AF_UNIX)'`, Options{}, Options{DenyUnix: true}},
		{
			"datagram pair", `python3 -c 'import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)'`,
			Options{}, Options{DenyUnix: true},
		},
		{"ipc", `ipcrm -q "$(ipcmk -Q | tr -dc 0-9)"`, Options{}, Options{DenyIPC: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.Need(t, "userns", "python3", "ipcmk")
			if r := shell(t, nil, c.script); r.code != 0 {
				t.Fatalf("fails without the filter too: %s", r.stderr)
			}
			if r := shell(t, &c.open, c.script); r.code != 0 {
				t.Errorf("%+v: status %d: %s", c.open, r.code, r.stderr)
			}
			if r := shell(t, &c.closed, c.script); r.code == 0 {
				t.Errorf("%+v: %q succeeded", c.closed, c.script)
			}
		})
	}
}

// Connected pairs are how programs talk to their own children; DenyUnix keeps
// them.
func TestDenyUnixKeepsPairs(t *testing.T) {
	const script = `python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))'`
	testenv.Need(t, "python3")
	if r := shell(t, nil, script); r.code != 0 {
		t.Fatalf("fails without the filter too: %s", r.stderr)
	}
	if r := shell(t, &Options{DenyUnix: true}, script); r.code != 0 {
		t.Errorf("status %d: %s", r.code, r.stderr)
	}
}

// A second filter can be loaded under the first: nested use only tightens. // N13
func TestNestedFilters(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := childEnv + `='{"Options":{"AllowSetuidBits":true},"Argv":["sh","-c","echo in; : > f; chmod 4755 f"]}' ` + self
	r := shell(t, &Options{}, script)
	if r.stdout != "in\n" || !strings.Contains(r.stderr, "not permitted") {
		t.Errorf("status %d, output %q, said %q; want the inner command to run and the outer filter to hold", r.code, r.stdout, r.stderr)
	}
}

// bwrap takes the bytes as they are. // F11
func TestBwrapLoadsTheFilter(t *testing.T) {
	testenv.Need(t, "bwrap", "userns", "unshare")
	run := func(o *Options) ([]byte, error) {
		args := []string{"--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--", "unshare", "-U", "true"}
		cmd := exec.Command("bwrap", args...)
		if o != nil {
			code, err := Filter(*o)
			if err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := w.Write(code); err != nil {
				t.Fatal(err)
			}
			w.Close()
			cmd.Args = append([]string{"bwrap", "--seccomp", "3"}, args...)
			cmd.ExtraFiles = []*os.File{r}
		}
		return cmd.CombinedOutput()
	}
	if out, err := run(nil); err != nil {
		t.Fatalf("bwrap without a filter: %v: %s", err, out)
	}
	if out, err := run(&Options{AllowNamespaces: true}); err != nil {
		t.Errorf("namespaces allowed: %v: %s", err, out)
	}
	if out, err := run(&Options{}); err == nil || !strings.Contains(string(out), "Operation not permitted") {
		t.Errorf("namespaces denied: %v: %s; want Operation not permitted", err, out)
	}
}
