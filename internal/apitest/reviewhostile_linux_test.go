package apitest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A reviewer is a person who types commands of cloche in a workspace.
type reviewer struct {
	t   *testing.T
	dir string
}

func newReviewer(t *testing.T) *reviewer {
	t.Helper()
	_, dir := reviewed(t)
	return &reviewer{t, dir}
}

// inside runs a script as a command of the review.
func (r *reviewer) inside(script string) {
	r.t.Helper()
	r.cloche("", 0, "run", "--workspace", r.dir, "--backend", "native", "--review", "--", "sh", "-ec", script)
}

// review runs a command of cloche review with answers on its standard input.
func (r *reviewer) review(answers string, want int, args ...string) string {
	r.t.Helper()
	return r.cloche(answers, want, append([]string{"review"}, args...)...)
}

func (r *reviewer) cloche(answers string, want int, args ...string) string {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	c := exec.Command(self, append([]string{clocheWord}, args...)...)
	c.Dir, c.Stdin = r.dir, strings.NewReader(answers)
	out, err := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); got != want {
		r.t.Fatalf("cloche %q: status %d, want %d: %v: %s", args, got, want, err, out)
	}
	return string(out)
}

// With -p a person is asked for everything that is applied: also for conflicts with --theirs, and once for what is applied only as a whole.
func TestReviewPatchAsks(t *testing.T) {
	testenv.AlsoAsUser(t)
	r := newReviewer(t)
	r.inside(`echo mine > a; rm b; mkdir b; echo in > b/in; rm -r dir; echo file > dir; echo new > new`)
	shellOutside(t, r.dir, "echo theirs > a")
	before := treeState(t, r.dir)
	r.review("n\nn\nn\nn\n", 0, "apply", "-p", "--theirs")
	if after := treeState(t, r.dir); after != before {
		t.Errorf("no was taken for yes:\n%s", after)
	}
	// a; b, without which there is no b/in; dir with what was in it; new.
	out := r.review("y\nn\ny\nn\n", 0, "apply", "-p", "--theirs")
	if got := shellOutside(t, r.dir, "cat a b dir; test ! -e new || echo new"); got != "mine\ntwo\nfile\n" {
		t.Errorf("%q: %s", got, out)
	}
	if n := strings.Count(out, "belong together"); n != 1 {
		t.Errorf("asked %d times for what belongs together: %s", n, out)
	}
	r.review("", 0, "discard")
	r.inside(`git -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m two`)
	if out := r.review("n\n", 0, "apply", "-p"); !strings.HasSuffix(out, "applied 0 changes\n") || strings.Count(out, "belong together") != 1 {
		t.Errorf("the git directory: %s", out)
	}
	if out := r.review("y\n", 0, "apply", "-p"); shellOutside(t, r.dir, "git log --oneline | wc -l") != "2\n" {
		t.Errorf("the git directory: %s", out)
	}
}

// A change of permissions is shown together with one of the content.
func TestReviewShowsModes(t *testing.T) {
	r := newReviewer(t)
	shellOutside(t, r.dir, "chmod 600 a")
	r.inside(`echo more >> a; chmod 666 a; echo x > open; chmod 666 open; mkdir folder; chmod 777 folder`)
	out := r.review("", 0)
	for _, want := range []string{"; mode 666, was 600)  every user may write it", "open  (2 B)  every user may write it", "folder/  every user may write it"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	if out := r.review("", 0, "diff", "a"); !strings.Contains(out, "old mode 100600\nnew mode 100666\n") {
		t.Errorf("the diff lacks the mode:\n%s", out)
	}
}

// A file that cannot be read does not hide the rest of a diff.
func TestReviewDiffGoesOn(t *testing.T) {
	testenv.AlsoAsUser(t)
	r := newReviewer(t)
	r.inside(`echo mine > a; echo mine > b`)
	shellOutside(t, r.dir, "rm a; mkfifo a")
	want := 0
	if os.Geteuid() != 0 {
		shellOutside(t, r.dir, "rm a; echo > a; chmod 000 a")
		want = 125
	}
	if out := r.review("", want, "diff"); !strings.Contains(out, "+++ b/b") {
		t.Errorf("the diff ends early: %s", out)
	}
}

// JSON has no character that acts on a terminal.
func TestReviewJSONIsPlain(t *testing.T) {
	r := newReviewer(t)
	r.inside(`n=$(printf 'c1\302\23331m\177 rtl\342\200\256'); echo "$n" > "$n"; ln -s "$n" link`)
	for _, args := range [][]string{{"--json"}, {"diff", "--json"}, {"apply", "--json"}} {
		out := r.review("", 0, args...)
		if strings.ContainsAny(out, "\u009b\u007f\u202e") || !strings.Contains(out, `c1\u009b31m\u007f rtl\u202e`) {
			t.Errorf("%q printed %q", args, out)
		}
	}
}

// What a command changes after a person has looked at the review is not applied before the person has looked again.
func TestReviewAppliesWhatWasSeen(t *testing.T) {
	testenv.AlsoAsUser(t)
	r := newReviewer(t)
	const change = `echo "$0" >> a; echo "$0" >> b; rm -rf dir; mkdir dir; echo "$0" > dir/new; echo "$0" > new`
	host := func() string {
		return shellOutside(t, r.dir, "cat a b; cat new dir/new 2>/dev/null || true; test ! -e dir/f || echo f")
	}
	r.inside(change)
	r.inside("echo second >> b") // nobody has looked: everything is applied
	r.review("", 0, "apply", "b")
	r.review("", 0)
	r.inside(`echo third >> a; rm -r dir; mkdir dir; echo third > dir/new`)
	if out := r.review("", 1, "apply"); !strings.Contains(out, "left "+r.dir+"/a: a command changed it") || !strings.Contains(out, "left "+r.dir+"/dir/new: a command") || !strings.Contains(out, "left "+r.dir+"/dir/f: a command") {
		t.Errorf("the apply: %s", out)
	}
	if got := host(); got != "one\ntwo\nsh\nsecond\nsh\nf\n" {
		t.Errorf("after the apply: %q", got)
	}
	r.review("", 0, "diff", "a")
	if out := r.review("", 1, "apply"); strings.Contains(out, "/a: ") || !strings.Contains(out, "/dir/new: ") {
		t.Errorf("after one diff: %s", out)
	}
	r.review("", 0, "diff")
	r.review("", 0, "apply")
	if got := host(); got != "one\nsh\nthird\ntwo\nsh\nsecond\nsh\nthird\n" {
		t.Errorf("in the end: %q", got)
	}
}

// A binary file in a diff does not keep git from applying the rest of it.
func TestReviewDiffOfBinary(t *testing.T) {
	r := newReviewer(t)
	shellOutside(t, r.dir, `printf 'x\0' > 1; printf 'x\0' > 2; printf 'x\0' > 3`)
	r.inside(`printf 'y\0' > 1; printf 'y\0' > 2; chmod 755 2; rm 3; printf 'y\0' > 4; echo more >> a; echo more >> b`)
	diff := r.review("", 0, "diff")
	if err := os.WriteFile(r.dir+"/.git/the.diff", []byte(diff), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := shellOutside(t, r.dir, "git apply .git/the.diff; cat a b"); got != "one\nmore\ntwo\nmore\n" {
		t.Errorf("%q after the diff:\n%s", got, diff)
	}
	for _, want := range []string{"Binary files a/1 and b/1 differ\n", "a/2 and b/2 differ, old mode 100644, new mode 100755", "a/3 and /dev/null differ, deleted file mode 100644", "/dev/null and b/4 differ, new file mode 100644"} {
		if !strings.Contains(diff, want) {
			t.Errorf("the diff lacks %q:\n%s", want, diff)
		}
	}
}
