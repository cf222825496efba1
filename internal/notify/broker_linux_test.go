package notify

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// F14 N9: a protected name cannot be made in any way, at any depth, and everything else
// works as without a broker.
func TestProtectedNames(t *testing.T) {
	for name, script := range map[string]string{
		"create":            "echo x > .envrc",
		"create deeper":     "mkdir -p a/b && echo x > a/b/.envrc",
		"mkdir":             "mkdir .envrc",
		"rename":            "echo x > a && mv a .envrc",
		"rename a folder":   "mkdir d && touch d/settings && mv d .vscode",
		"link":              "echo x > a && ln a .envrc",
		"symlink":           "ln -s a .envrc",
		"through a symlink": "ln -s $PWD/.envrc l && echo x > l",
		"a dangling chain":  "ln -s .envrc l && ln -s l m && echo x > m",
		"below":             "mkdir .vscode; echo x > .vscode/settings.json",
		"dots":              "mkdir d; echo x > d/.././.envrc",
		"fifo":              "mkfifo .envrc",
		"proc":              "echo x > /proc/self/cwd/.envrc",
		"descriptor":        "mkdir d; cd d; exec 5<.; cd ..; echo x > /proc/self/fd/5/.envrc",
		"inside moved":      "mkdir -p x/.git; echo p > x/.git/hook; mv x/.git/hook x/.envrc",
		"carried":           "mkdir -p d; echo 1 > d/tasks.json; mkdir e; mv d e/.vscode",
		"two parts":         "mkdir -p d/inner; mv d outer",
		"python":            `python3 -c 'import os; os.open(".envrc", os.O_CREAT|os.O_RDWR)'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := realTemp(t)
			config := workspace(dir, protect("**/.envrc"), protect("**/.vscode"), protect("**/outer/inner"))
			out, refused := run(t, config, "writes", "cd "+dir+"\n"+script)
			if len(refused) == 0 || !strings.Contains(out, "ermission denied") {
				t.Errorf("refused %q, output %q", refused, out)
			}
			for _, p := range []string{".envrc", "a/b/.envrc", "d/.envrc", "x/.envrc", ".vscode", "e/.vscode", "outer/inner"} {
				if _, err := os.Lstat(filepath.Join(dir, p)); err == nil {
					t.Errorf("%s exists", p)
				}
			}
		})
	}
}

// F14: what exists cannot be changed or removed.
func TestProtectedFilesStay(t *testing.T) {
	for name, script := range map[string]string{
		"write":       "echo x > .envrc",
		"append":      "echo x >> .envrc",
		"truncate":    "truncate -s 0 .envrc",
		"truncate(2)": `python3 -c 'import os; os.truncate(".envrc", 0)'`,
		"unlink":      "rm -f .envrc",
		"rename away": "mv .envrc b",
		"hard link":   "ln .envrc b && echo x > b",
		"exchange":    `python3 -c 'import ctypes,os; open("b","w").write("x"); l=ctypes.CDLL(None,use_errno=True); r=l.renameat2(-100,b"b",-100,b".envrc",2); print(os.strerror(ctypes.get_errno()) if r else "done")'`,
		"read-write":  "exec 3<>.envrc; echo x >&3",
		"reopen":      "exec 3<.envrc; echo x > /proc/self/fd/3",
		"replace":     "echo x > b; mv -f b .envrc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := realTemp(t)
			file := filepath.Join(dir, ".envrc")
			if err := os.WriteFile(file, []byte("mine\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			out, refused := run(t, workspace(dir, protect("**/.envrc")), "writes", "cd "+dir+"\n"+script)
			if got, _ := os.ReadFile(file); string(got) != "mine\n" || len(refused) == 0 {
				t.Errorf("content %q, refused %q, output %q", got, refused, out)
			}
		})
	}
}

// What is not protected works, with the same result as without a broker.
func TestEverythingElseWorks(t *testing.T) {
	script := `set -e
cd "$1"
umask 027; echo 1 > a; umask 002; mkdir d; echo 2 > d/b; chmod 600 d/b
mkdir -p x/y/z; ln -s ../a x/link; echo more >> x/link; ln a hard; mv d/b d/c; mv x xx
mkfifo p; (echo through > p) & cat p > got; wait
(umask 077; echo s > secret)
cp -a xx copy; rm -r xx/y; rmdir d 2>/dev/null || true
truncate -s 3 a; : > empty; echo out > /dev/stdout; echo null > /dev/null
exec 4<>rw; echo rw >&4; cat rw > rw2
dd if=/dev/zero of=zero bs=1k count=3 2>/dev/null
tar cf t.tar copy; mkdir un; tar xf t.tar -C un; tar tf t.tar > list
python3 - <<'P'
import os, tempfile
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640); os.write(fd, b"tmp")
os.link("/proc/self/fd/%d" % fd, "named", src_dir_fd=os.open("/", 0), follow_symlinks=True)
d = os.open("copy", os.O_RDONLY); f = os.open("rel", os.O_CREAT | os.O_WRONLY, 0o604, dir_fd=d); os.write(f, b"x")
os.rename("rel", "rel2", src_dir_fd=d, dst_dir_fd=d); os.unlink("rel2", dir_fd=d); os.mkdir("md", 0o711, dir_fd=d)
with tempfile.NamedTemporaryFile(dir=".", delete=False, prefix="keep", suffix="") as t: t.write(b"1"); n = t.name
os.replace(n, "replaced"); os.symlink("nowhere", "dangling")
try: os.mkdir("copy")
except FileExistsError: open("eexist", "w").close()
try: open("no/such", "w")
except FileNotFoundError: open("enoent", "w").close()
try: open("copy", "w")
except IsADirectoryError: open("eisdir", "w").close()
try: os.open("a", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
except FileExistsError: open("eexcl", "w").close()
try: os.open("dangling", os.O_WRONLY | os.O_NOFOLLOW)
except OSError as e: open("eloop%d" % e.errno, "w").close()
P
rm p; find . -printf '%p %y %m %s %l %n\n' | sort | sed 's/ d \([0-9]*\) [0-9]*/ d \1/'; sha1sum named rel 2>/dev/null | cut -c1-9`
	plain := realTemp(t)
	want := shell(t, script, plain)
	dir := realTemp(t)
	c := start(t, workspace(dir, protect("**/.envrc")), "writes", "sh", "-c", script, "sh", dir)
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &c.out)
	}
	if got := c.out.String(); got != want {
		t.Errorf("with a broker:\n%s\nwithout:\n%s", got, want)
	}
	if list, _ := c.broker.Denied(); len(list) != 0 {
		t.Errorf("refused: %+v", list)
	}
}

// N9 F14: a hidden pattern hides what exists, what is made later by others, and
// what links lead to; everything else can be read.
func TestHiddenNames(t *testing.T) {
	dir := realTemp(t)
	for name, text := range map[string]string{".env": "SECRET\n", "ok": "fine\n", "deep.pem": "SECRET\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, refused := run(t, workspace(dir, hide("**/.env"), hide("**/*.pem")), "reads",
		"cd "+dir+"; cat ok; cat .env; cat deep.pem; ln -s .env l; cat l; cat ./././.env; cat /proc/self/cwd/.env; cp .env copy; echo x > new.pem; cat < ok; ls")
	if strings.Contains(out, "SECRET") || strings.Count(out, "fine") != 2 {
		t.Errorf("output: %s", out)
	}
	for _, want := range []string{"read " + dir + "/.env", "read " + dir + "/deep.pem", "create " + dir + "/new.pem"} {
		if !slices.Contains(refused, want) {
			t.Errorf("%s is not in %q", want, refused)
		}
	}
}

func shell(t *testing.T, script, dir string) string {
	t.Helper()
	c := execShell(script, dir)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// A broker that has not been told what to hold allows nothing.
func TestServeRefusesUntilBegin(t *testing.T) {
	dir := t.TempDir()
	c := startUntold(t, "writes", "sh", "-c", "echo x > "+dir+"/file")
	if err := c.cmd.Wait(); err == nil {
		t.Error("the command could write")
	}
	if _, err := os.Stat(dir + "/file"); err == nil {
		t.Error("there is a file")
	}
}
