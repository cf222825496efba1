package review

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A lab is a workspace with a review.
type lab struct {
	t     testing.TB
	dir   string
	ws    string
	store Store
}

func newLab(t testing.TB, setup string) *lab {
	t.Helper()
	testenv.Need(t, "userns")
	dir := t.TempDir()
	l := &lab{t: t, dir: dir, ws: filepath.Join(dir, "ws"), store: Open(filepath.Join(dir, "state/review"))}
	must(t, os.Mkdir(l.ws, 0o755))
	l.shell(l.ws, setup)
	t.Cleanup(func() { _ = removeAll(filepath.Join(dir, "state")) })
	return l
}

// shell runs a script on the host.
func (l *lab) shell(dir, script string) string {
	l.t.Helper()
	c := exec.Command("/bin/bash", "-euc", script)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// inside runs a script with the workspace copy-on-write, as a command of the review.
func (l *lab) inside(script string) string {
	l.t.Helper()
	r, err := l.store.Begin(l.ws, DefaultName, []string{l.ws})
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Close()
	defer func() { _ = r.Keep() }() // as when a command ends
	return l.mounted(r.Layers()[0], script)
}

func (l *lab) mounted(layer Layer, script string) string {
	l.t.Helper()
	const mount = `mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=$2,workdir=$3" "$1" && cd "$1" && exec /bin/bash -euc "$4"`
	c := exec.Command("/bin/sh", "-euc", mount, "sh", layer.Root, layer.Upper, layer.Work, script)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	if err != nil {
		l.t.Fatalf("inside: %s: %v\n%s", script, err, out)
	}
	return string(out)
}

func (l *lab) resume() *Review {
	l.t.Helper()
	r, err := l.store.Resume(l.ws, DefaultName)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

func (l *lab) list() []*Change {
	l.t.Helper()
	r := l.resume()
	defer r.Close()
	list, err := r.List(nil, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// lines are the changes in words.
func lines(list []*Change) []string {
	var out []string
	for _, c := range list {
		s := fmt.Sprintf("%s %s %q", c.Kind, c.Type, c.Path)
		if c.Was != "" {
			s += " was " + c.Was
		}
		if c.From != "" {
			s += " from " + c.From
		}
		for name, text := range map[string]string{"conflict": c.Conflict, "protected": c.Protected, "not carried": c.NotCarried} {
			if text != "" {
				s += " " + name
			}
		}
		out = append(out, s)
	}
	return out
}

func (l *lab) apply(o Options) *Outcome {
	l.t.Helper()
	r := l.resume()
	defer r.Close()
	out, err := r.Apply(o)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *lab) discard(want Filter) {
	l.t.Helper()
	r := l.resume()
	defer r.Close()
	if _, err := r.Discard(want); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) undo() *Outcome {
	l.t.Helper()
	r := l.resume()
	defer r.Close()
	out, err := r.Undo()
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// treeScript prints everything about a tree that a review carries.
const treeScript = `find . -mindepth 1 \( -type d -o -type l -o -type f \) ! -name '*.notcarried' -printf '%p %y %m %l\n' | sort; find . -type f -print0 | sort -z | xargs -0r sha256sum`

func (l *lab) host() string   { l.t.Helper(); return l.shell(l.ws, treeScript) }
func (l *lab) within() string { l.t.Helper(); return l.inside(treeScript) }

func under(ws string, rels ...string) Filter {
	return func(abs string) bool {
		return slices.ContainsFunc(rels, func(rel string) bool {
			p := filepath.Join(ws, rel)
			return abs == p || strings.HasPrefix(abs, p+"/")
		})
	}
}

// differ reports the lines that only one of two trees has.
func differ(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			t.Errorf("%s has: %q", what, line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			t.Errorf("%s lacks: %q", what, line)
		}
	}
	t.FailNow()
}

const someFiles = `
mkdir -p src/deep/er docs empty keep gone/a/b tofile
echo one > src/one; echo two > src/two; echo three > src/deep/three; echo four > src/deep/er/four
echo doc > docs/doc; seq 100 > docs/long; echo k > keep/k; ln -s one src/link
echo g1 > gone/g1; echo g2 > gone/a/g2; echo g3 > gone/a/b/g3; echo t > tofile/t; echo f > todir; chmod 755 src/two`

const someChanges = `
echo changed > src/one; echo new > src/new; mkdir -p fresh/sub/bare; echo x > fresh/x; echo y > fresh/sub/y
rm -r gone; rm src/two; ln -sf two src/link; chmod 600 src/deep/three; touch docs/doc
mv docs/long docs/moved; rm -r tofile; echo now a file > tofile; rm todir; mkdir todir; echo in > todir/in
rm -r keep; mkdir keep; echo other > keep/new; chmod 700 empty; printf 'a\0b' > $'odd \n name\e[31m'
cp src/one $'bytes \xff'; truncate -s 1M sparse; ln -s /etc/passwd out`

// N5: what a command does inside is what an apply does outside, an undo takes it back, and a discard forgets it.
func TestRoundTrip(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, someFiles)
	before := l.host()
	l.inside(someChanges)
	differ(t, "the command changed the host", l.host(), before)
	want := l.within()
	list := l.list()
	wantLines := []string{
		`renamed file "docs/moved" from docs/long`, `mode folder "empty"`, `added folder "fresh/sub/bare"`, `deleted file "gone/a/b/g3"`, `deleted folder "gone"`,
		`changed file "tofile" was folder`, `changed folder "todir" was file`, `deleted file "keep/k"`, `added file "keep/new"`, `mode file "src/deep/three"`,
		`changed link "src/link"`, `deleted file "src/two"`, `added file "odd \n name\x1b[31m"`, `added file "bytes \xff"`, `added link "out"`,
	}
	got := lines(list)
	for _, line := range wantLines {
		if !slices.Contains(got, line) {
			t.Errorf("the list lacks %s", line)
		}
	}
	for _, line := range got {
		if strings.Contains(line, "docs/doc") || strings.Contains(line, "conflict") {
			t.Errorf("the list has %s", line)
		}
	}
	if t.Failed() {
		t.Fatalf("the list:\n%s", strings.Join(got, "\n"))
	}
	out := l.apply(Options{})
	if !out.All() {
		t.Fatalf("not everything was applied: %+v", out)
	}
	differ(t, "after the apply", l.host(), want)
	if rest := l.list(); len(rest) > 0 {
		t.Fatalf("after the apply there are changes: %s", lines(rest))
	}
	differ(t, "inside after the apply", l.within(), want)
	if out := l.undo(); !out.All() {
		t.Fatalf("not everything was undone: %v", out.Failed)
	}
	differ(t, "after the undo", l.host(), before)
	differ(t, "inside after the undo", l.within(), want)
	if again := lines(l.list()); !slices.Equal(again, got) {
		t.Fatalf("the list after the undo:\n%s\nwant:\n%s", strings.Join(again, "\n"), strings.Join(got, "\n"))
	}
	l.discard(nil)
	if _, err := l.store.Resume(l.ws, DefaultName); !errors.Is(err, ErrNone) {
		t.Errorf("after a discard: %v", err)
	}
	differ(t, "inside after the discard", l.within(), before)
}

// The command never sees an apply, whatever part is applied, and a discarded path is the host's again.
func TestParts(t *testing.T) {
	testenv.AlsoAsUser(t)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			l := newLab(t, someFiles)
			l.inside(someChanges)
			want := l.within()
			for range 4 {
				list := l.list()
				part := map[string]bool{}
				for _, c := range list {
					if random.IntN(3) == 0 {
						part[c.Abs()] = true
					}
				}
				l.apply(Options{Want: func(abs string) bool { return part[abs] }})
				differ(t, "inside after the apply of %v", l.within(), want)
				if random.IntN(2) == 0 {
					if _, err := os.Stat(l.resumeFile("journal")); err == nil {
						r := l.resume()
						if _, err := r.Undo(); err != nil && !errors.Is(err, ErrNothingToUndo) {
							t.Fatal(err)
						}
						r.Close()
					}
					differ(t, "inside after the undo", l.within(), want)
				}
			}
			l.apply(Options{})
			differ(t, "in the end", l.host(), want)
		})
	}
}

func (l *lab) resumeFile(name string) string {
	return filepath.Join(l.store.folder(l.ws, DefaultName), name)
}

// A discarded part is the host's again, and the rest stays.
func TestDiscardParts(t *testing.T) {
	testenv.AlsoAsUser(t)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 8))
			l := newLab(t, someFiles)
			before := l.host()
			l.inside(someChanges)
			for n := 0; ; n++ {
				list := l.list()
				if len(list) == 0 {
					break
				}
				if n > 100 {
					t.Fatalf("these cannot be discarded: %s", lines(list))
				}
				c := list[random.IntN(len(list))]
				l.discard(under(l.ws, c.Path))
				rest := lines(l.list())
				if slices.Contains(rest, lines([]*Change{c})[0]) {
					t.Fatalf("after its discard the list has %v", lines([]*Change{c}))
				}
				if len(rest) >= len(list) {
					t.Fatalf("the discard of %s left\n%s\nof\n%s", c.Path, strings.Join(rest, "\n"), strings.Join(lines(list), "\n"))
				}
			}
			differ(t, "inside after everything was discarded", l.within(), before)
			l.discard(func(string) bool { return true }) // a file that was touched
			if upper, _ := filepath.Glob(l.resumeFile("layers/0/upper/*")); len(upper) > 0 {
				t.Errorf("left in the upper folder: %v", upper)
			}
		})
	}
}
