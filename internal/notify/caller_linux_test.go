package notify

import (
	"bufio"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// maskPrelude is for programs that change their umask in every way that there is. made returns
// the mode of a new file.
const maskPrelude = `
import ctypes, os, platform, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
FS, CHLD = 0x200, 17
count, prefix = 0, ""
def made():
    global count
    count += 1
    name = prefix + "%d-%d" % (threading.get_native_id(), count)
    fd = os.open(name, os.O_CREAT|os.O_EXCL|os.O_WRONLY, 0o777)
    mode = os.fstat(fd).st_mode & 0o777
    os.close(fd)
    os.stat(name) # the kernel finds it from the thread's own directory
    os.unlink(name)
    return mode
def expect(what, mask, times=8):
    for _ in range(times):
        got = made()
        if got != 0o777 & ~mask:
            print("%s: a file with mode %o and umask %o" % (what, got, mask), flush=True)
            os._exit(1)
def in_thread(f):
    t = threading.Thread(target=f)
    t.start()
    return t
def clone(flags):
    return libc.syscall({"x86_64": 56, "aarch64": 220}[platform.machine()], flags, 0, 0, 0, 0)
`

// A new file has the umask of the thread that makes it, however that came to be, although the
// broker remembers it.
func TestMasksOfThreads(t *testing.T) {
	testenv.Need(t, "python3")
	for name, script := range map[string]string{
		"changed often": `
for i in range(200):
    os.umask(i * 5 % 512 & 0o377)
    expect("own", i * 5 % 512 & 0o377, 1 + i % 8)`,
		"changed by another thread": `
os.umask(0o022)
turn = [threading.Semaphore(0), threading.Semaphore(0)]
def work():
    for mask in [0o022, 0o077] * 50:
        turn[0].acquire()
        expect("worker", mask)
        turn[1].release()
w = in_thread(work)
for mask in [0o022, 0o077] * 50:
    os.umask(mask)
    turn[0].release()
    turn[1].acquire()
w.join()`,
		// The files that are made while another thread changes the mask may have either: the
		// first one after it has the new one.
		"changed while files are made": `
state, checked = [(0, 0o022, False)], [0]
os.umask(0o022)
def work():
    while state[0][0] >= 0:
        before = state[0]
        mode = made()
        if state[0] is before and not before[2]:
            if mode != 0o777 & ~before[1]:
                print("a file with mode %o and umask %o" % (mode, before[1]), flush=True)
                os._exit(1)
            checked[0] = before[0]
w = in_thread(work)
def change():
    for i in range(1, 400):
        mask = i % 2 * 0o055 + 0o022
        state[0] = (i, mask, True)
        libc.umask(mask)
        state[0] = (i, mask, False)
        while checked[0] != i and w.is_alive():
            time.sleep(0.0001)
    state[0] = (-1, 0, False)
c = in_thread(change)
c.join()
w.join()`,
		"two threads with a mask each": `
os.umask(0o022)
def work():
    libc.unshare(FS)
    os.umask(0o077)
    ready.set()
    expect("apart", 0o077, 200)
ready = threading.Event()
w = in_thread(work)
ready.wait()
expect("first", 0o022, 200)
w.join()`,
		"shared by two processes": `
for mask in [0o077, 0o022] * 10:
    os.umask(mask ^ 0o055)
    expect("parent", mask ^ 0o055)
    r, w = os.pipe()
    pid = clone(FS | CHLD)
    if pid == 0:
        libc.umask(mask)
        os.write(w, b"x")
        time.sleep(60) # it makes no other call that is handed over
        os._exit(0)
    os.close(w)
    os.read(r, 1)
    expect("parent of one that shares", mask)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    expect("parent of one that shared", mask)
    os.close(r)`,
		// By execve the second thread takes the number of the first one.
		"another thread becomes the first": `
os.umask(0o022)
expect("alone", 0o022)
def work():
    libc.unshare(FS)
    os.umask(0o077)
    ready.set()
    go.wait()
    os.execv(sys.executable, [sys.executable, "-c", prelude + "\nexpect('second', 0o077)"])
ready, go = threading.Event(), threading.Event()
in_thread(work)
ready.wait()
expect("first", 0o022, 50)
go.set()
while True:
    time.sleep(1)`,
		"another thread takes over at once": `
os.umask(0o022)
expect("alone", 0o022)
def work():
    libc.unshare(FS)
    os.umask(0o077)
    os.execv(sys.executable, [sys.executable, "-c", prelude + "\nexpect('second', 0o077)"])
in_thread(work)
while True:
    made()`,
		"children of several": `
masks = [0o022, 0o077, 0o027, 0o000]
for i in range(24):
    mask = masks[i % 4]
    os.umask(mask)
    pid = os.fork()
    if pid == 0:
        expect("child", mask)
        os._exit(0)
    expect("parent", mask)
    if os.waitpid(pid, 0)[1] != 0:
        os._exit(1)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := realTemp(t)
			whole := "prelude = r'''" + maskPrelude + "'''\n" + maskPrelude + script
			if err := os.WriteFile(dir+"/program", []byte(whole), 0o644); err != nil {
				t.Fatal(err)
			}
			out, refused := run(t, workspace(dir), "writes", "cd "+dir+"; exec python3 program")
			if out != "" || len(refused) > 0 {
				t.Errorf("%s; refused %q", out, refused)
			}
		})
	}
}

// A thread that gets the number of one that has ended has a umask and a directory of its own.
func TestMaskOfReusedNumber(t *testing.T) {
	testenv.Need(t, "root", "python3")
	dir := realTemp(t)
	const script = `
def child(mask, before, where):
    global prefix
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(w)
        os.chdir(where)
        if turn % 2:
            prefix = os.getcwd() + "/" # then the directory is not asked for
        if before:
            os.umask(mask)
        os.read(r, 1)
        expect("child", mask)
        os._exit(0)
    os.close(r)
    return pid, w
def finish(pid, w):
    os.close(w)
    if os.waitpid(pid, 0)[1] != 0:
        os._exit(1)
os.umask(0o077)
os.mkdir("one")
os.mkdir("two")
reused = [0, 0]
for turn in range(2000):
    pid, w = child(0o022, True, 'one')
    finish(pid, w)
    os.write(3, b"%d\n" % (pid - 1))
    sys.stdin.readline()
    other, w = child(0o077, False, 'two') # inherited: nobody has called umask since
    reused[turn % 2] += other == pid
    finish(other, w)
    if min(reused) >= 2:
        break
else:
    print("no number was given twice")
`
	if err := os.WriteFile(dir+"/program", []byte(maskPrelude+script), 0o644); err != nil {
		t.Fatal(err)
	}
	var pipes [2]*os.File
	for i, name := range []string{"/ask", "/answer"} {
		if err := unix.Mkfifo(dir+name, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(dir+name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		pipes[i] = f
	}
	go func() { // the program itself has not the right
		for lines := bufio.NewScanner(pipes[0]); lines.Scan(); {
			if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", lines.Bytes(), 0); err != nil {
				t.Error(err)
			}
			if _, err := pipes[1].WriteString("done\n"); err != nil {
				return
			}
		}
	}()
	out, _ := run(t, workspace(dir), "writes", "cd "+dir+"; exec python3 program <answer 3>ask")
	if out != "" {
		t.Error(out)
	}
}
