package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
)

// A keptAgent is an agent that runs lines of a shell in a project, with a home folder of its own.
type keptAgent struct {
	t               *testing.T
	home, ws        string
	dir             string   // where it is started
	by              []string // starts the agent
	cmd             *exec.Cmd
	in              io.WriteCloser
	out, err, ended string
}

// newKeptAgent starts an agent, by another program if there is one. Its line "$C SCRIPT" has cloche run a script.
func newKeptAgent(t *testing.T, by ...string) *keptAgent {
	t.Helper()
	return newKeptAgentIn(t, "", by...)
}

// newKeptAgentIn starts the agent in a folder of the project.
func newKeptAgentIn(t *testing.T, sub string, by ...string) *keptAgent {
	t.Helper()
	testenv.Need(t, "userns", "bash")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := &keptAgent{t: t, by: by, home: dir + "/home", ws: dir + "/ws", out: dir + "/out", err: dir + "/err", ended: dir + "/ended"}
	for _, d := range []string{a.home + "/.config/cloche", a.ws + "/.git", a.ws + "/sub"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a.dir = filepath.Join(a.ws, sub)
	a.write(a.ws+"/.git/HEAD", "ref: refs/heads/main\n")
	a.start()
	t.Cleanup(func() {
		a.end()
		testenv.Eventually(t, "the keepers end with the agent", func() bool { return len(a.keepers()) == 0 })
		// Standard error of a keeper is the null device.
		if races, _ := filepath.Glob(filepath.Dir(a.ws) + "/race.*"); len(races) > 0 {
			text, _ := os.ReadFile(races[0])
			t.Errorf("data race: %s", text)
		}
		if left, _ := os.ReadDir(a.sockets()); len(left) > 0 {
			t.Errorf("sockets are left: %v", left)
		}
	})
	return a
}

func (a *keptAgent) write(file, text string) {
	a.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *keptAgent) sockets() string { return a.home + "/.local/state/cloche/keepers" }

func (a *keptAgent) start() {
	a.t.Helper()
	program, err := exec.LookPath("cloche")
	if err != nil {
		a.t.Fatal(err)
	}
	if agent, err := exec.LookPath("anagent"); err != nil {
		a.t.Fatal(err)
	} else {
		argv := slices.Concat(a.by, []string{agent, "bash"})
		a.cmd = exec.Command(argv[0], argv[1:]...)
	}
	a.cmd.Dir = a.dir
	a.cmd.Env = []string{"HOME=" + a.home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0 log_path=" + filepath.Dir(a.ws) + "/race", "C=" + program + " agent exec --"}
	a.cmd.Stderr = os.Stderr
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
}

// end ends the agent, and what it started outside of sandboxes.
func (a *keptAgent) end() {
	_ = a.in.Close()
	_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL) // the shell too, and clients
	_ = a.cmd.Wait()
}

// begin has the agent run a line, and does not wait for its end.
func (a *keptAgent) begin(line string) {
	a.t.Helper()
	_ = os.Remove(a.ended)
	if _, err := fmt.Fprintf(a.in, "( %s\n) </dev/null >%s 2>%s; echo $? >%s.new; mv %[4]s.new %[4]s\n", line, a.out, a.err, a.ended); err != nil {
		a.t.Fatal(err)
	}
}

// A ran is what a line printed, and its status.
type ran struct {
	status         int
	stdout, stderr string
}

// done waits for the line.
func (a *keptAgent) done() (r ran) {
	a.t.Helper()
	testenv.Eventually(a.t, "the line ends", func() bool { _, err := os.Stat(a.ended); return err == nil })
	text := func(file string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		return string(b)
	}
	r.stdout, r.stderr = text(a.out), text(a.err)
	var err error
	if r.status, err = strconv.Atoi(strings.TrimSpace(text(a.ended))); err != nil {
		a.t.Fatal(err)
	}
	return r
}

func (a *keptAgent) run(line string) ran {
	a.t.Helper()
	a.begin(line)
	return a.done()
}

// keepers are the keepers of the home folder.
func (a *keptAgent) keepers() (pids []int) {
	a.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		a.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		environ, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if bytes.HasPrefix(line, []byte("cloche\x00agent\x00keep\x00")) && bytes.Contains(environ, []byte("HOME="+a.home+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// warm runs commands until one was run by a keeper, and returns the keeper.
func (a *keptAgent) warm() (pid int) {
	a.t.Helper()
	testenv.Eventually(a.t, "a keeper runs the command", func() bool {
		if r := a.run("$C true"); r != (ran{}) {
			a.t.Fatalf("%+v", r)
		}
		pid = a.runner()
		return slices.Contains(a.keepers(), pid)
	})
	return pid
}

// events are the events of the audit log.
func (a *keptAgent) events() (list []audit.Event) {
	a.t.Helper()
	files, err := filepath.Glob(a.home + "/.local/state/cloche/audit/*.jsonl")
	if err != nil {
		a.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var e audit.Event
			if json.Unmarshal(line, &e) == nil && e.Kind != "" {
				list = append(list, e)
			}
		}
	}
	return list
}

// runner is the process that has run the last command.
func (a *keptAgent) runner() int {
	a.t.Helper()
	for _, e := range slices.Backward(a.events()) {
		if e.Kind == audit.Start {
			return e.PID
		}
	}
	return 0
}

// N15: a command in a warm session has the same results as one with a sandbox of its own.
func TestKeptIsLikeCold(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.AlsoAsUser(t)
	a := newKeptAgent(t)
	a.write(a.ws+"/big", strings.Repeat("0123456789abcde\n", 200_000))
	keeper := a.warm()
	for i, line := range []string{
		`$C 'exit 7'`,
		`$C 'kill -9 $$'`,
		`$C 'kill -TERM $$'`,
		`$C 'nosuchprogram'`,
		`$C '/etc/passwd'`,
		`$C 'for i in $(seq 200); do echo out $i; echo err $i >&2; done' 2>&1 | cat`,
		`$C 'echo out; echo err >&2'`,
		`cat big | $C 'wc -c; cat /dev/null'`,
		`$C 'wc -c' <big`,
		`{ $C 'read x; echo $x'; read y; echo then $y; } <big`,
		`cat big | { $C 'head -n 1 | tr a-z A-Z'; wc -c; }`,
		`$C 'cat; echo read' <&-`,
		`$C 'echo x' >&-`,
		`$C 'echo x >&2' 2>&-`,
		`yes | $C 'head -n 3'`,
		`$C 'yes' | head -n 3`,
		`cd sub; $C 'pwd; echo $PWD; touch here ../above && ls -A . ..'`,
		`cd /; $C 'pwd'`,
		`umask 027; $C 'umask; touch masked; stat -c %a masked; rm masked'`,
		`ulimit -n 99; $C 'ulimit -n'`,
		`nice -n 5 $C 'nice'`,
		`LANG=de_DE.UTF-8 FOO=1 $C 'env | grep -v "^_=" | sort'`,
		`$C $'printf \'%s\' \'a\xff\xfe\x01\t\n\' "\'" | od -c'`,
		`$C 'touch /etc/cloche-beside; cat ~/.ssh/none; echo $?'`,
		`$C ''`,
		`$C '(sleep 1000; echo late) & echo begun'`,
		`$C 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo begun'`,
		`${C% exec --} exec -c 'echo $0 $-'`,
		`${C% agent exec --} -l -c 'shopt -q login_shell && echo $0 $1' name one`,
		`${C% --} --shell /bin/sh -- 'echo $0'`,
		`$C 'ls /proc | grep -c "^[0-9]"; ls -A /tmp /var/tmp /dev/shm; echo left >/tmp/x; ipcmk -Q >/dev/null; ipcs -q | wc -l'`,
		`$C 'ls -l /proc/self/fd | wc -l'`,
		`rm -f ready; $C 'trap "echo caught; exit 3" USR1; : >ready; while :; do sleep 0.1; done' & until [ -e ready ]; do sleep 0.05; done; kill -USR1 $!; wait $!`,
		`rm -f ready; $C ': >ready; exec sleep 1000' & until [ -e ready ]; do sleep 0.05; done; kill -TERM $!; wait $!`,
	} {
		// A variable that the command does not see gives it another key.
		cold := a.run("export COLD=" + strconv.Itoa(i) + "; " + line)
		if pid := a.runner(); pid == keeper {
			t.Fatalf("%s: ran warm", line)
		}
		warm := a.run("unset COLD; " + line)
		if warm != cold {
			t.Errorf("%s:\nwarm %.600q\ncold %.600q", line, fmt.Sprint(warm), fmt.Sprint(cold))
		}
	}
	if now := a.warm(); now != keeper {
		t.Errorf("keeper %d, was %d", now, keeper)
	}
}

// expect runs a script and expects its output and status, whether by the keeper or not.
func (a *keptAgent) expect(what, script, stdout string, status int) {
	a.t.Helper()
	a.expectLine(what, "$C '"+script+"' 2>/dev/null", stdout, status)
}

func (a *keptAgent) expectLine(what, line, stdout string, status int) {
	a.t.Helper()
	if r := a.run(line); strings.TrimSpace(r.stdout) != stdout || r.status != status {
		a.t.Errorf("%s: %s printed %q and ended with %d, want %q and %d; stderr %q", what, line, r.stdout, r.status, stdout, status, r.stderr)
	}
}

// cloche runs another command of cloche in the project.
func (a *keptAgent) cloche(line string) {
	a.t.Helper()
	if r := a.run("${C%% *} " + line); r.status != 0 {
		a.t.Fatalf("cloche %s: %+v", line, r)
	}
}

// N15: what is changed between two commands holds for the second one, also where a keeper runs it: policy files, trust,
// grants, what is switched, and files and sockets of the host.
func TestKeptPolicyIsOfNow(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.AlsoAsUser(t)
	a := newKeptAgent(t)
	user, project := a.home+"/.config/cloche/policy.yaml", a.ws+"/.cloche.yaml"
	outside := filepath.Dir(a.home) + "/outside"
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	a.write(outside+"/file", "out\n")
	a.write(a.ws+"/file", "in\n")
	keeper := a.warm()
	write := "echo x >" + outside + "/new && cat " + outside + "/new"
	clean := func() { _ = os.Remove(outside + "/new") }
	a.expect("at first", write, "", 1)

	a.write(user, "version: 1\npaths: {write: ["+outside+"], hide: ["+a.ws+"/file]}\n")
	a.expect("the user's file allows", write, "x", 0)
	a.expect("the user's file hides", "cat file", "", 1)
	clean()
	if err := os.Remove(user); err != nil {
		t.Fatal(err)
	}
	a.expect("the user's file is gone", write, "", 1)
	a.expect("the user's file is gone", "cat file", "in", 0)

	a.write(project, "version: 1\npaths: {write: ["+outside+"], hide: [file]}\n")
	a.expect("the project's file does not allow", write, "", 1)
	a.expect("the project's file hides", "cat file", "", 1)
	a.cloche("policy trust")
	a.expect("the project's file is trusted", write, "x", 0)
	clean()
	a.cloche("policy untrust")
	a.expect("the project's file is trusted no more", write, "", 1)
	if err := os.Remove(project); err != nil {
		t.Fatal(err)
	}
	a.expect("the project's file is gone", "cat file", "in", 0)

	store := grant.OpenStore(a.home + "/.local/share/cloche")
	g := grant.Grant{ID: "aaaaaa", Path: outside, Access: grant.Write, Scope: grant.Always, Workspace: a.ws, Made: time.Now()}
	if err := store.Add(g); err != nil {
		t.Fatal(err)
	}
	a.expect("it is granted", write, "x", 0)
	clean()
	a.cloche("grants revoke aaaaaa")
	a.expect("it is granted no more", write, "", 1)
	if a.runner() != keeper {
		t.Errorf("the keeper does not run commands any more")
	}

	a.cloche("disable --project")
	a.expect("the sandbox is switched off", write, "x", 0)
	clean()
	a.cloche("enable --project")
	a.expect("the sandbox is switched on", write, "", 1)
	a.cloche("reset --project")
	a.cloche("disable")
	a.expect("the sandbox is switched off for the terminal", write, "x", 0)
	a.expectLine("it is off for the terminal alone", "setsid -w $C '"+write+"'", "", 1)
	clean()
	a.cloche("reset")

	a.write(user, "version: 1\nenv: {set: {MARK: a}}\nlimits: {time: 1s}\n")
	a.expect("a variable and a limit", "echo $MARK; sleep 1000", "a", 124)
	a.write(user, "version: 1\nwarm: false\n")
	a.expect("the user wants no warm session", "echo cold", "cold", 0)
	if a.runner() == keeper {
		t.Errorf("the keeper runs commands although the user has switched it off")
	}
	a.write(user, "version: 1\n")

	// Files under a name that is hidden where it is found, in the moment of each command.
	a.write(a.ws+"/sub/.env", "TOKEN=1\n")
	a.expect("a new file with secrets", "cat sub/.env", "", 1)
	// The next file may have the number of the removed one.
	for range 5 {
		if err := os.Remove(a.ws + "/sub/.env"); err != nil {
			t.Fatal(err)
		}
		a.write(a.ws+"/sub/.env", "TOKEN=2\n")
		a.expect("a file with secrets made anew", "cat sub/.env", "", 1)
	}
	// A program that the user's git settings name since.
	a.write(a.ws+"/tool", "")
	a.expect("a program", "echo x >tool", "", 0)
	a.write(a.home+"/.gitconfig", "[core]\n\tfsmonitor = "+a.ws+"/tool\n")
	a.expect("a program of git", "echo x >tool", "", 1)
	// The log is gone.
	if err := os.RemoveAll(a.home + "/.local/state/cloche/audit"); err != nil {
		t.Fatal(err)
	}
	a.expect("no log", "echo ran", "ran", 0)
	if a.runner() == 0 {
		t.Error("nothing is in the new log")
	}
	// A socket of the host that was made since.
	l, err := net.Listen("unix", a.ws+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a.expect("a new socket", "test -S socket && echo seen; true", a.run("COLD=1 $C 'test -S socket && echo seen; true'").stdout, 0)
}

// N15: a file system that was mounted between two commands is there for the second one, and gone when it is unmounted.
func TestKeptMounts(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "root", "unshare")
	a := newKeptAgent(t, "unshare", "-m", "--propagation", "private")
	keeper := a.warm()
	a.expect("before", "ls sub", "", 0)
	if r := a.run("mount -t tmpfs none sub && : >sub/mounted"); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	a.expect("mounted", "ls sub", "mounted", 0)
	a.run("umount sub")
	a.expect("unmounted", "ls sub", "", 0)
	if a.runner() != keeper {
		t.Errorf("the keeper does not run the commands")
	}
}

// N15: a keeper serves one agent, and one project: two agents have two keepers, and so has an agent in another folder.
func TestKeptAgentsAreApart(t *testing.T) {
	t.Parallel() // it mostly waits
	a, b := newKeptAgent(t), newKeptAgent(t)
	one, other := a.warm(), b.warm()
	if one == other {
		t.Fatalf("two agents have keeper %d", one)
	}
	// The second agent in the home and the project of the first.
	c := *a
	c.out, c.err, c.ended = a.out+"2", a.err+"2", a.ended+"2"
	c.start()
	if pid := c.warm(); pid == one {
		t.Errorf("an agent has the keeper of another one in the same project")
	}
	c.end()
	testenv.Eventually(t, "its keeper ends with it", func() bool { return slices.Equal(a.keepers(), []int{one}) })
	if now := a.warm(); now != one {
		t.Errorf("keeper %d, was %d", now, one)
	}
	if text := a.run("${C%% *} status; ${C%% *} agent status claude").stdout; !strings.Contains(text, fmt.Sprintf("kept for agents by process %d\n", one)) || !strings.Contains(text, fmt.Sprintf("process %d keeps a warm sandbox", one)) {
		t.Errorf("cloche status says %q", text)
	}
	// One that changes a variable for each command has no more than some.
	a.run(`for i in $(seq 12); do N=$i $C true; sleep 0.1; done`)
	if pids := a.keepers(); len(pids) > 5 {
		t.Errorf("keepers %v", pids)
	}
	// Commands that run at the same time.
	if r := a.run(`for i in $(seq 8); do $C "sleep 0.2; echo $i" & done; wait`); strings.Join(slices.Sorted(strings.FieldsSeq(r.stdout)), "") != "12345678" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
}

// N15: nothing is left of a keeper, whatever is killed when: its command ends, its client says so and runs nothing itself, and the
// next command runs.
func TestKeptKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.AlsoAsUser(t)
	a := newKeptAgent(t)
	pid := a.warm()
	for i := range 12 {
		mark := fmt.Sprintf("1000.%09d", rand.IntN(1e9))
		_ = os.Remove(a.ws + "/ran")
		a.begin("$C 'echo begun >>ran; (setsid sleep " + mark + " &); exec sleep " + mark + "'")
		if i%2 == 0 {
			testenv.Eventually(t, "the command runs", func() bool { _, err := os.Stat(a.ws + "/ran"); return err == nil })
		} else {
			time.Sleep(rand.N(30 * time.Millisecond)) // the moment of the kill is what varies
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			// It may have been too early for the keeper: then the client runs the command itself.
			testenv.Eventually(t, "the client ends, or runs the command, which is ended", func() bool {
				kill(t, "sleep\x00"+mark)
				_, err := os.Stat(a.ended)
				return err == nil
			})
		}
		r := a.done()
		if r.status == statusRefused && !strings.Contains(r.stderr, "keeps the sandbox has ended") || i%2 == 0 && r.status != statusRefused {
			t.Errorf("round %d: %+v", i, r)
		}
		testenv.Eventually(t, "its processes end", func() bool { return len(withArgument(t, mark)) == 0 })
		if text, _ := os.ReadFile(a.ws + "/ran"); len(text) > len("begun\n") {
			t.Errorf("round %d: the command has run twice", i)
		}
		pid = a.warm()
	}
	if sockets, err := os.ReadDir(a.sockets()); err != nil || len(sockets) != 1 {
		t.Errorf("sockets of killed keepers are left: %v (%v)", sockets, err)
	}

	// The client.
	mark := fmt.Sprintf("1000.%09d", rand.IntN(1e9))
	a.begin("$C '(setsid sleep " + mark + " &); sleep " + mark + "'")
	testenv.Eventually(t, "the command runs", func() bool { return len(withArgument(t, "sleep\x00"+mark)) == 2 })
	if a.runner() != pid {
		t.Fatal("the keeper does not run the command")
	}
	kill(t, "agent\x00exec\x00--\x00(setsid sleep "+mark)
	if r := a.done(); r.status != 128+9 {
		t.Errorf("the killed client: %+v", r)
	}
	testenv.Eventually(t, "its processes end", func() bool { return len(withArgument(t, mark)) == 0 })
	if now := a.warm(); now != pid {
		t.Errorf("keeper %d, was %d", now, pid)
	}

	// The agent. A command of it goes on, as without a keeper, and the keeper ends after it.
	a.begin("$C 'until [ -e go ]; do sleep 0.05; done; : >over'")
	testenv.Eventually(t, "the command runs", func() bool { return len(withArgument(t, "until [ -e go ]")) > 0 })
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the socket is removed", func() bool { s, err := os.ReadDir(a.sockets()); return err == nil && len(s) == 0 })
	a.write(a.ws+"/go", "")
	testenv.Eventually(t, "the command ends", func() bool { _, err := os.Stat(a.ws + "/over"); return err == nil })
}

// withArgument are the processes with a text in their arguments.
func withArgument(t *testing.T, text string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(text)) && !bytes.HasPrefix(line, []byte("bash\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills the processes with a text in their arguments.
func kill(t *testing.T, text string) {
	t.Helper()
	for _, pid := range withArgument(t, text) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// N15: however many commands a keeper has run, it has no more descriptors, threads and memory.
func TestKeptStaysSmall(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newKeptAgent(t)
	pid := a.warm()
	some := func() { a.run(`for i in $(seq 50); do $C 'echo out; echo err >&2' >/dev/null 2>&1 </dev/null; done`) }
	some()
	size := func() (descriptors, threads int, resident int) {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			_, _ = fmt.Sscanf(line, "Threads: %d", &threads)
			_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &resident)
		}
		return len(entries), threads, resident
	}
	before, threads, resident := size()
	for range 4 {
		some()
	}
	if now := a.warm(); now != pid {
		t.Fatalf("keeper %d, was %d", now, pid)
	}
	var after, threadsAfter, residentAfter int
	if !testenv.Becomes(func() bool {
		after, threadsAfter, residentAfter = size()
		return after <= before+2 && threadsAfter <= threads+4
	}) {
		t.Errorf("%d descriptors and %d threads, were %d and %d", after, threadsAfter, before, threads)
	}
	if residentAfter > resident+16<<10 {
		t.Errorf("%d kB, were %d", residentAfter, resident)
	}
	t.Logf("%d descriptors, %d threads, %d kB; then %d, %d, %d", before, threads, resident, after, threadsAfter, residentAfter)
}

// N15: a command sees nothing of its keeper: not its socket, not its process. It does not outlive its own end there.
func TestKeptIsOutOfReach(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "python3")
	testenv.AlsoAsUser(t)
	a := newKeptAgent(t)
	pid := a.warm()
	sockets, err := os.ReadDir(a.sockets())
	if err != nil || len(sockets) != 1 {
		t.Fatalf("%v, %v", sockets, err)
	}
	a.write(a.ws+"/attack.py", `
import os, socket, sys
path, pid = sys.argv[1], int(sys.argv[2])
for name in (path, "\0" + path, "/proc/%d/root%s" % (pid, path), "/proc/1/root" + path, "/proc/self/cwd" + path):
    try:
        s = socket.socket(socket.AF_UNIX); s.connect(name); print("connected to", name)
    except OSError: s.close()
for victim in [pid] + list(range(2, 70000, 997)):
    if victim != os.getpid() and os.path.exists("/proc/%d/cmdline" % victim) and b"keep" in open("/proc/%d/cmdline" % victim, "rb").read():
        print("sees", victim)
try: os.kill(pid, 9); print("killed")
except OSError: pass
for fd in os.listdir("/proc/self/fd"):
    try: link = os.readlink("/proc/self/fd/" + fd)
    except OSError: continue
    if "socket" in link and int(fd) > 2: print("has", fd, link)
for line in open("/proc/net/unix"):
    if "cloche" in line: print(line)
if os.path.exists(os.path.dirname(path)): print("sees the folder")
print("tried")
`)
	a.expectLine("the attack", "$C 'python3 attack.py "+filepath.Join(a.sockets(), sockets[0].Name())+" "+strconv.Itoa(pid)+"'", "tried", 0)
	if a.runner() != pid {
		t.Errorf("the keeper does not run the command")
	}
	// As a client, from inside: there the script just runs.
	a.expectLine("cloche inside", `cp -L ${C%% *} cloche; $C "./cloche agent exec -- 'touch /etc/cloche-beside || echo refused'" 2>/dev/null`, "refused", 0)
	// What it leaves running in the shared network is gone for the next one.
	a.run(`$C 'setsid python3 -c "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind(chr(0)+chr(120)); s.listen(); time.sleep(1000)" >/dev/null 2>&1 & sleep 0.3'`)
	a.expect("what was left behind", "grep -c @x /proc/net/unix", "0", 1)
	if a.runner() != pid {
		t.Errorf("the keeper does not run the command")
	}
}

// N15: variables that a project's settings give the commands of an agent lead to no keeper, and no policy, of the project.
func TestKeptVariables(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newKeptAgent(t)
	pid := a.warm()
	evil := a.ws + "/evil"
	for _, d := range []string{"/cloche/keepers", "/.config/cloche", "/.local/state/cloche/keepers"} {
		if err := os.MkdirAll(evil+d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"/cloche/policy.yaml", "/.config/cloche/policy.yaml"} {
		a.write(evil+f, "version: 1\npaths: {write: [/]}\n")
	}
	// A command could turn the link into a folder while cloche starts, and make the folder that is not there.
	if err := os.Symlink(filepath.Dir(a.ws), a.ws+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{
		"XDG_CONFIG_HOME=" + evil, "XDG_STATE_HOME=" + evil, "XDG_DATA_HOME=" + evil, "HOME=" + evil,
		"XDG_CONFIG_HOME=" + a.ws + "/link", "XDG_STATE_HOME=" + a.ws + "/link/none", "XDG_CONFIG_HOME=/proc/self/cwd/none",
		"XDG_DATA_HOME=/proc/self/cwd/evil", fmt.Sprintf("XDG_CONFIG_HOME=/proc/%d/root/tmp/none", os.Getpid()),
	} {
		for range 3 {
			r := a.run(set + ` $C 'touch ../planted; echo ran'`)
			if _, err := os.Lstat(filepath.Dir(a.ws) + "/planted"); err == nil || r.status != statusRefused || r.stdout != "" {
				t.Errorf("%s: %+v, %v", set, r, err)
			}
		}
		if e, _ := os.ReadDir(evil + "/cloche/keepers"); len(e) > 0 {
			t.Errorf("%s: %v", set, e)
		}
		if _, err := os.Lstat(filepath.Dir(a.ws) + "/cloche"); err == nil {
			t.Errorf("%s: the refusal was recorded outside", set)
		}
	}
	if now := a.warm(); now != pid {
		t.Errorf("keeper %d, was %d", now, pid)
	}
}

// N15: the note of the folder of Claude Code gets to the real /tmp from a warm session, and nothing else does.
func TestKeptClaudeNote(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.AlsoAsUser(t)
	a := newKeptAgent(t)
	pid := a.warm()
	claude := "${C% agent exec --} --agent=claude "
	note := fmt.Sprintf("/tmp/claude-%x-cwd", os.Getpid())
	defer os.Remove(note)
	a.expectLine("claude", claude+`"eval 'cd sub; ls /proc/self/fd | wc -w; touch /etc/cloche-beside || echo refused' < /dev/null && pwd -P >| `+note+`" 2>/dev/null`, "4\nrefused", 0)
	if a.runner() != pid {
		t.Errorf("the keeper does not run the command")
	}
	if text, err := os.ReadFile(note); string(text) != a.ws+"/sub\n" {
		t.Errorf("the note is %q (%v)", text, err)
	}
	// One that is there is not taken, and a command that fails makes none.
	a.expectLine("claude", claude+`"eval 'cd /' && pwd -P >| `+note+`"; cat `+note, a.ws+"/sub", 0)
	_ = os.Remove(note)
	a.expectLine("claude", claude+`"false && pwd -P >| `+note+`"; echo $?; test -e `+note, "1", 1)
	a.expectLine("claude", claude+`"exit 3 && pwd -P >| `+note+`"`, "", 3)
}

// N15: where the warm sandbox cannot be made, because a command keeps changing what it hides, others run in their own.
func TestKeptChanges(t *testing.T) {
	a := newKeptAgent(t)
	a.warm()
	r := a.run(`$C ': >begun; until [ -e stop ]; do echo x >.env; rm -f .env; done' & until [ -e begun ]; do sleep 0.05; done
		for i in $(seq 30); do $C true && echo ran; done; touch stop; wait`)
	// A sandbox of its own may be too slow as well, but hardly ever.
	if ran := strings.Count(r.stdout, "ran"); ran < 27 {
		t.Errorf("%d of 30 ran: %s", ran, r.stderr)
	}
}

// N15: the shell that an agent names for a command is not shown where the policy shows nothing, neither to that command nor to later ones.
func TestAgentShellIsNotShown(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.AlsoAsUser(t)
	a := newKeptAgent(t)
	a.write(a.home+"/.config/cloche/policy.yaml", "version: 1\nreads: system\n")
	for file, text := range map[string]string{a.home + "/tool": "#!/bin/sh\n# SECRET\necho ran\n", a.ws + "/shell": "#!/bin/sh\necho shell $1 $2\n"} {
		a.write(file, text)
		if err := os.Chmod(file, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(a.home+"/tool", a.ws+"/link"); err != nil {
		t.Fatal(err)
	}
	keeper := a.warm()
	for _, cold := range []string{"", "COLD=1 "} {
		for _, shell := range []string{a.home + "/tool", a.ws + "/link", "/bin/../" + a.home + "/tool"} {
			if r := a.run(cold + "${C% --} --shell " + shell + " -- x"); r.status == 0 || r.stdout != "" {
				t.Errorf("%s%s: %+v", cold, shell, r)
			}
		}
		a.expectLine("a file of the home folder", cold+"$C 'cat "+a.home+"/tool' 2>/dev/null", "", 1)
		a.expectLine("a shell of the project", cold+"${C% --} --shell "+a.ws+"/shell -- x", "shell -c x", 0)
	}
	if now := a.warm(); now != keeper {
		t.Errorf("keeper %d, was %d", now, keeper)
	}
}

// N15: where there are descriptors for few commands, all of many run, and the keeper keeps running.
func TestKeptFewDescriptors(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newKeptAgent(t)
	limited := "ulimit -n 110; "
	var keeper int
	testenv.Eventually(t, "a keeper runs the command", func() bool {
		if r := a.run(limited + "$C true"); r != (ran{}) {
			t.Fatalf("%+v", r)
		}
		keeper = a.runner()
		return slices.Contains(a.keepers(), keeper)
	})
	for range 2 {
		r := a.run(limited + "for i in $(seq 24); do $C 'sleep 0.3; echo '$i & done; wait")
		if lines := strings.Fields(r.stdout); len(lines) != 24 || r.stderr != "" {
			t.Errorf("%d of 24 ran: %s", len(lines), r.stderr)
		}
	}
	if r := a.run(limited + "$C true"); r != (ran{}) || a.runner() != keeper {
		t.Errorf("%+v by %d, was %d", r, a.runner(), keeper)
	}
}

// other makes a folder beside the project.
func (a *keptAgent) other() string {
	a.t.Helper()
	dir := filepath.Dir(a.ws) + "/other"
	if err := os.Mkdir(dir, 0o700); err != nil {
		a.t.Fatal(err)
	}
	return dir
}

// N15: a command that removes the folder of the agent, and puts a link in its place under the name that the kernel then shows, does not choose
// the workspace of the next command.
func TestAgentFolderRemoved(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.AlsoAsUser(t)
	a := newKeptAgentIn(t, "sub")
	other := a.other()
	a.warm()
	if r := a.run(`$C 'cd .. && rmdir sub && mkdir sub && ln -s ../other "sub (deleted)"'`); r.status != 0 {
		t.Fatalf("%+v", r)
	}
	for range 3 {
		r := a.run("cd " + other + " && $C 'echo x >planted'")
		if _, err := os.Lstat(other + "/planted"); err == nil || r.status != statusRefused || !strings.Contains(r.stderr, "was removed") {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// N15: a command that keeps replacing the folder of the agent by a link, and by one in PWD, does not choose the workspace of another command,
// whether a keeper runs that or not.
func TestAgentFolderReplaced(t *testing.T) {
	t.Parallel() // it mostly waits
	testenv.Need(t, "python3")
	testenv.AlsoAsUser(t)
	a := newKeptAgentIn(t, "sub")
	planted := a.other() + "/planted"
	a.write(a.ws+"/flip.py", `
import ctypes, os
exchange = ctypes.CDLL(None).renameat2
os.symlink("../other", "link")
open("begun", "w")
while not os.path.exists("stop"):
    if exchange(-100, b"sub", -100, b"link", 2) != 0: print("cannot"); break
`)
	attempt := ` $C 'echo ran; echo x >` + planted + `'`
	r := a.run("$C 'cd .. && exec python3 flip.py' & until [ -e " + a.ws + "/begun ]; do sleep 0.05; done\n" +
		"for i in $(seq 40); do COLD=$i" + attempt + "; PWD=" + a.ws + "/sub" + attempt + "; done; touch " + a.ws + "/stop; wait")
	if _, err := os.Lstat(planted); err == nil || strings.Contains(r.stdout, "cannot") {
		t.Errorf("written outside: %+v", r)
	}
	if !strings.Contains(r.stdout, "ran") {
		t.Errorf("no command has run: %+v", r)
	}
	// Keepers that have found themselves in another folder than their client leave notes that they cannot serve.
	a.end()
	testenv.Eventually(t, "the keepers end with the agent", func() bool { return len(a.keepers()) == 0 })
	_ = os.RemoveAll(a.sockets())
}
