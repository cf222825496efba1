package apitest

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// reviewed returns a workspace with files and a git repository, and a policy that keeps changes
// in a review. The store of reviews is the test's own.
func reviewed(t *testing.T, opts ...policy.Option) (policy.Policy, string) {
	t.Helper()
	testenv.Need(t, "overlayfs", "userns", "git")
	t.Setenv("XDG_STATE_HOME", filepath.Join(workspace(t), "state"))
	dir := workspace(t)
	shellOutside(t, dir, `git init -q . && git config user.email a@example.com && git config user.name A
		echo one > a; echo two > b; mkdir -p dir/sub; echo x > dir/f; git add a b dir && git commit -qm first; echo SECRET > .env`)
	return policy.Workspace(dir).With(policy.WithBackend("native"), policy.WithReview("")).With(opts...), dir
}

// shellOutside runs a shell script without a sandbox.
func shellOutside(t *testing.T, dir, script string) string {
	t.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// treeState describes every file below a folder: its name, mode, owner, size, times and content.
func treeState(t *testing.T, dir string) string {
	t.Helper()
	return shellOutside(t, dir, `find . -printf '%p %M %U:%G %s %T@ %C@ %l\n' | sort; find . -type f -exec sha256sum {} + | sort`)
}

// N5: an ordinary user can remove the store of reviews, in which overlayfs makes a folder without permissions, and a file in it once
// a command has deleted one.
func TestReviewStoreCanBeRemoved(t *testing.T) {
	testenv.AlsoAsUser(t)
	p, dir := reviewed(t)
	if r := capture(t, open(t, p, dir), "echo new > n; rm a b"); !r.Success() {
		t.Fatalf("%v: %s", r, r.Stderr)
	}
	state := os.Getenv("XDG_STATE_HOME")
	if found, err := filepath.Glob(filepath.Join(state, "cloche/review/*/layers/*/work/work")); err != nil || len(found) == 0 {
		t.Fatalf("no review below %s: %v", state, err)
	}
	if err := os.RemoveAll(state); err != nil {
		t.Error(err)
	}
}

// N5: what a command of a review writes, deletes, moves and links stays in the review. A later
// command of the review continues there, and another review does not see it.
func TestReviewKeepsChangesAside(t *testing.T) {
	testenv.AlsoAsUser(t)
	p, dir := reviewed(t)
	before := treeState(t, dir)
	s := open(t, p, dir)
	r := capture(t, s, `set -e
		echo new > n; echo more >> a; rm b; mkdir d2; echo y > d2/g; mv dir/f dir/f2; ln a hard; ln -s a soft; chmod 700 n
		rm -r dir/sub; mkdir dir/sub; echo z > dir/sub/z; mv d2 d3; mkfifo fifo
		git rm -q b; git add a n d3; git commit -qm second; git log --oneline | wc -l`)
	if got := string(r.Stdout); !r.Success() || strings.TrimSpace(got) != "2" {
		t.Fatalf("the first command: %s", brief(r))
	}
	if after := treeState(t, dir); after != before {
		t.Errorf("the host changed:\n%s\nwas\n%s", after, before)
	}
	const want = "one\nmore\nnew\ny\nx\nz\none\nmore\na d3 dir fifo hard n soft\n"
	r = capture(t, s, `cat a n d3/g dir/f2 dir/sub/z soft; echo *; test ! -e b && git diff --exit-code HEAD a`)
	if string(r.Stdout) != want || !r.Success() {
		t.Errorf("the second command: %s", brief(r))
	}
	other := open(t, p.With(policy.WithReview("other")), dir)
	if r = capture(t, other, "echo *; cat a"); string(r.Stdout) != "a b dir\none\n" {
		t.Errorf("another review: %s", brief(r))
	}
	// A program that only the review has can be started.
	capture(t, s, `printf '#!/bin/sh\necho here\n' > prog; chmod +x prog`)
	if r, err := s.Command(t.Context(), "./prog").Capture(); err != nil || string(r.Stdout) != "here\n" {
		t.Errorf("a program of the review: %v, %v", r, err)
	}
	if after := treeState(t, dir); after != before {
		t.Error("the host changed after the first command")
	}
}

// N5: rules hold in a review as they do without: hidden and protected files, patterns, git's
// hooks and settings, and the rest of the host.
func TestReviewKeepsRules(t *testing.T) {
	testenv.AlsoAsUser(t)
	p, dir := reviewed(t, policy.HidePaths("urn:cloche:workspace/dir", "**/*.pem"), policy.AllowWrite("urn:cloche:workspace/dir/sub"), policy.ProtectPaths("urn:cloche:workspace/a"))
	shellOutside(t, dir, "echo key > b.pem")
	before := treeState(t, dir)
	r := capture(t, open(t, p, dir), `
		cat .env b.pem dir/f
		echo x > .envrc; echo x > a; rm -f a; mv a a2; echo x > .git/hooks/pre-commit; git config core.pager evil; echo x > /etc/planted
		mv dir dir2; echo in > dir/sub/in && cat dir/sub/in`)
	if got := string(r.Stdout); got != "in\n" {
		t.Errorf("inside: %s", brief(r))
	}
	if r = capture(t, open(t, p, dir), "cat dir/sub/in a; ls -A .git/hooks | grep -v sample; git config core.pager; ls -A"); string(r.Stdout) != "in\none\n.env\n.git\na\nb\nb.pem\ndir\n" {
		t.Errorf("what was left in the review: %s", brief(r))
	}
	if after := treeState(t, dir); after != before {
		t.Errorf("the host changed:\n%s\nwas\n%s", after, before)
	}
}

// N5: a command of a review, or a later one, gets no copy of a hidden file under another name: by a link, a move, a copy, or a change of its mode, which
// has overlayfs copy it.
func TestReviewKeepsHiddenFiles(t *testing.T) {
	testenv.AlsoAsUser(t)
	p, dir := reviewed(t, policy.HidePaths("**/*.pem"))
	shellOutside(t, dir, "echo SECRET > b.pem; mkdir deep; echo SECRET > deep/c.pem")
	before := treeState(t, dir)
	s := open(t, p, dir)
	capture(t, s, `for f in .env b.pem deep/c.pem; do ln $f l; ln -s $f s; cat l s; rm -f s; mv $f m; chmod 777 $f; touch $f; echo x >> $f; true > $f; cp -a $f c; rm -f $f; done
		mv deep deep2; cp -a deep deep3; tar cf t.tar . ; mkdir new; touch new/c.pem; echo x > new/.env; mv new renamed`)
	layers := filepath.Join(os.Getenv("XDG_STATE_HOME"), "cloche/review/*/layers/*/upper")
	if found := shellOutside(t, dir, "find "+layers+" -type f ! -name b.pem ! -name c.pem -exec grep -l SECRET {} + || true"); found != "" {
		t.Errorf("the review has %s", found)
	}
	if r := capture(t, s, "cat .env b.pem deep/c.pem m l s c; grep -r SECRET ."); len(r.Stdout) > 0 {
		t.Errorf("a later command sees %s", brief(r))
	}
	home := workspace(t)
	if out := clocheIn(t, dir, home, 0, "review", "--workspace", dir); !strings.Contains(out, "t.tar") || strings.Contains(out, "A  l") || strings.Contains(out, "A  c") {
		t.Errorf("the review has:\n%s", out)
	}
	if after := treeState(t, dir); after != before {
		t.Errorf("the host changed:\n%s\nwas\n%s", after, before)
	}
}

// N5: a review has one user at a time, and is free when that has ended, also if it was killed.
// What was written before the kill is there.
func TestReviewSurvivesKill(t *testing.T) {
	testenv.AlsoAsUser(t)
	p, dir := reviewed(t)
	before := treeState(t, dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, clocheWord, "run", "--workspace", dir, "--backend", "native", "--review", "--", "sh", "-c", "echo kept > kept; echo ready; sleep 1000")
	c.Dir, c.Stderr = dir, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	s := open(t, p, dir)
	if _, err := s.Command(t.Context(), "true").Capture(); err == nil || !strings.Contains(err.Error(), "still runs") || !strings.Contains(err.Error(), "--review=NAME") {
		t.Errorf("a second command of the review: %v", err)
	}
	home := workspace(t)
	// What is there can be listed meanwhile, and neither applied nor dropped nor taken back.
	if out := clocheIn(t, dir, home, 0, "review", "--workspace", dir); !strings.Contains(out, "A  kept") || !strings.Contains(out, "still runs") {
		t.Errorf("the list while a command runs: %s", out)
	}
	for _, word := range []string{"apply", "discard", "undo"} {
		if out := clocheIn(t, dir, home, 125, "review", word, "--workspace", dir); !strings.Contains(out, "still runs") {
			t.Errorf("%s while a command runs: %s", word, out)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if r := capture(t, s, "cat kept"); string(r.Stdout) != "kept\n" {
		t.Errorf("after the kill: %s", brief(r))
	}
	if after := treeState(t, dir); after != before {
		t.Error("the host changed")
	}
	if mounts := shellOutside(t, dir, "cat /proc/self/mountinfo"); strings.Contains(mounts, "overlay cloche") {
		t.Errorf("a mount is left on the host:\n%s", mounts)
	}
}

// N5 N10: the commands of a warm session share its review, which stays locked until the session is closed.
func TestReviewWarm(t *testing.T) {
	for name, mode := range warmModes {
		t.Run(name, func(t *testing.T) {
			p, dir := reviewed(t)
			before := treeState(t, dir)
			s := open(t, p, dir, mode)
			capture(t, s, "echo one > w; rm b")
			if r := capture(t, s, "cat w; echo two >> w; test ! -e b"); string(r.Stdout) != "one\n" || !r.Success() {
				t.Errorf("the second command: %s", brief(r))
			}
			other := open(t, p, dir)
			if _, err := other.Command(t.Context(), "true").Capture(); err == nil || !strings.Contains(err.Error(), "still runs") {
				t.Errorf("another session while this one is open: %v", err)
			}
			s.Refresh()
			if r := capture(t, s, "cat w"); string(r.Stdout) != "one\ntwo\n" {
				t.Errorf("in a new sandbox of the session: %s", brief(r))
			}
			s.Close()
			if r := capture(t, other, "cat w"); string(r.Stdout) != "one\ntwo\n" {
				t.Errorf("after the session: %s", brief(r))
			}
			if after := treeState(t, dir); after != before {
				t.Error("the host changed")
			}
		})
	}
}

// N5: nothing inside leads to the layers of a review, and no file in it means something to overlayfs.
func TestReviewCannotBeReached(t *testing.T) {
	testenv.AlsoAsUser(t)
	testenv.Need(t, "python3")
	p, dir := reviewed(t)
	before := treeState(t, dir)
	state := os.Getenv("XDG_STATE_HOME")
	r := capture(t, open(t, p, dir), `
		grep -c '`+state+`' /proc/self/mountinfo /proc/mounts
		ls -A '`+state+`/cloche'; cd '`+state+`/cloche/review'
		ls -l /proc/[0-9]*/fd 2>/dev/null | grep -e upper -e review
		cat /proc/1/environ | tr '\0' '\n' | grep review
		mknod whiteout c 0 0 && echo made; mknod dir/f c 0 0 && echo made
		python3 - <<'.'
import os, ctypes
for name in ("opaque", "whiteout", "redirect", "metacopy", "origin"):
    for path in ("dir", "a"):
        try: os.setxattr(path, "user.overlay." + name, b"y")
        except OSError: pass
    try: os.setxattr("dir", "trusted.overlay." + name, b"y"); print("trusted")
    except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
for call in (lambda: libc.umount2(b".", 2), lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, None), lambda: libc.unshare(0x10000000 | 0x20000)):
    if call() == 0: print("a mount changed")
.
		umount . && echo unmounted
		ls dir; cat a dir/f`)
	if got := string(r.Stdout); got != "/proc/self/mountinfo:0\n/proc/mounts:0\nf\nsub\none\nx\n" {
		t.Errorf("inside: %s", brief(r))
	}
	// In a new mount, too, the attributes hide nothing.
	if r = capture(t, open(t, p, dir), "ls dir; cat a dir/f; chmod u+s a; cp /bin/sh s; chmod 4755 s; id -u > id0; ./s -c 'id -u' > id1; cmp id0 id1"); string(r.Stdout) != "f\nsub\none\nx\n" {
		t.Errorf("later: %s", brief(r))
	}
	if after := treeState(t, dir); after != before {
		t.Error("the host changed")
	}
}

// N5: single files, and writable paths besides the workspace, are part of the review; what is
// private to the command is not.
func TestReviewOtherPaths(t *testing.T) {
	more := workspace(t)
	shellOutside(t, more, "mkdir d; echo f > file; echo g > d/g; mkfifo d/pipe")
	p, dir := reviewed(t, policy.AllowWrite(filepath.Join(more, "file"), filepath.Join(more, "d")))
	before := treeState(t, more)
	s := open(t, p, dir)
	cmd := `cd '` + more + `'; cat file d/*g; echo again >> file; echo again >> d/g; touch /tmp/t; ls -A /tmp | grep -c ^t$`
	if r := capture(t, s, cmd); string(r.Stdout) != "f\ng\n1\n" {
		t.Errorf("the first command: %s", brief(r))
	}
	if r := capture(t, s, "ls -A /tmp | grep -c ^t$; "+cmd); string(r.Stdout) != "0\nf\nagain\ng\nagain\n1\n" {
		t.Errorf("the second command: %s", brief(r))
	}
	if after := treeState(t, more); after != before {
		t.Errorf("the host changed:\n%s\nwas\n%s", after, before)
	}
}

// N5: a backend that cannot show folders copy-on-write has a gap that names them. A strict policy does
// not run, and nothing is made.
func TestReviewGaps(t *testing.T) {
	p, dir := reviewed(t)
	for _, backend := range []string{"landlock", "bwrap"} {
		t.Run(backend, func(t *testing.T) {
			testenv.Need(t, backend)
			_, err := open(t, p.With(policy.WithBackend(backend)), dir).Command(t.Context(), "touch", "made").Capture()
			var gaps *cloche.GapError
			if !errors.As(err, &gaps) {
				t.Fatalf("the command ran: %v", err)
			}
			found := false
			for _, g := range gaps.Gaps {
				found = found || g.Rule == "review" && strings.Contains(g.Subject, dir) && g.Fix != ""
			}
			if !found {
				t.Errorf("no gap names the review: %v", gaps.Gaps)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
	if _, err := os.Stat(filepath.Join(os.Getenv("XDG_STATE_HOME"), "cloche", "review")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a store of reviews: %v", err)
	}
}

// N5: a folder in which something is mounted is named, before the command starts.
func TestReviewNamesMountsInside(t *testing.T) {
	testenv.Need(t, "unshare")
	_, dir := reviewed(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", `mount -t tmpfs none dir/sub; exec "$@"`, "sh",
		self, clocheWord, "run", "--workspace", dir, "--backend", "native", "--review", "--", "touch", "made")
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "review "+dir) || !strings.Contains(string(out), "mounted in it, at "+dir+"/dir/sub") {
		t.Errorf("%v: %s", err, out)
	}
}

// N5: a granted socket in a writable folder is the host's own, also in a review.
func TestReviewShowsGrantedSockets(t *testing.T) {
	testenv.Need(t, "python3")
	p, dir := reviewed(t)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const connect = `python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("s")' 2>/dev/null && echo connected`
	if r := capture(t, open(t, p, dir), connect); r.Success() {
		t.Errorf("without a grant: %s", brief(r))
	}
	if r := capture(t, open(t, p.With(policy.AllowSocket(filepath.Join(dir, "s"))), dir), connect); string(r.Stdout) != "connected\n" {
		t.Errorf("with a grant: %s", brief(r))
	}
}

// N5: a path of the policy that an earlier command of the review removed or replaced is an error that says so, and
// nothing is shown in its place.
func TestReviewLacksPathOfPolicy(t *testing.T) {
	p, dir := reviewed(t)
	capture(t, open(t, p, dir), "rm -r dir && ln -s /etc dir")
	for _, rule := range []policy.Option{policy.HidePaths(filepath.Join(dir, "dir/f")), policy.ProtectPaths(filepath.Join(dir, "dir/f"))} {
		_, err := open(t, p.With(rule), dir).Command(t.Context(), "true").Capture()
		if err == nil || !strings.Contains(err.Error(), dir+"/dir") || !strings.Contains(err.Error(), "earlier command of the review default") {
			t.Errorf("the command ran, or the error does not say why: %v", err)
		}
	}
}

// N5: the file methods of a session do not open what commands see in a review, and nobody is asked
// about a change that would not be in it.
func TestReviewHasOneView(t *testing.T) {
	p, dir := reviewed(t)
	s := open(t, p, dir)
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_CREATE} {
		if f, err := s.OpenFile("a", flag, 0o600); err == nil || !strings.Contains(err.Error(), "review default") {
			f.Close()
			t.Errorf("OpenFile: %v", err)
		}
	}
	if f, err := s.OpenFile("/bin/sh", os.O_RDONLY, 0); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if err := s.Wrap(exec.Command("/bin/true")); err == nil || !strings.Contains(err.Error(), "review default") {
		t.Errorf("Wrap: %v", err)
	}
	if _, err := s.Verify(t.Context(), "true"); err == nil || !strings.Contains(err.Error(), "--review=false") {
		t.Errorf("Verify: %v", err)
	}
	outsideDir := workspace(t)
	asked := false
	approver := approverFunc(func(d *grant.Desk, r grant.Request) {
		asked = true
		_, _ = d.Decide(r.ID, grant.Decision{Allow: true})
	})
	asking := open(t, p, dir, cloche.WithAsk(grant.Options{Approvers: []grant.Approver{approver}}))
	r := capture(t, asking, "touch '"+outsideDir+"/granted'; touch in")
	if entries, err := os.ReadDir(outsideDir); asked || err != nil || len(entries) > 0 {
		t.Errorf("asked: %v, made: %v, %v: %s", asked, entries, err, brief(r))
	}
}
