package review

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N5: conflicts whose lines do not overlap are merged, race-free as any change, and an undo brings both sides back. The others
// are left with their reason.
func TestMerge(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `seq 9 > clean; seq 9 > overlap; seq 9 > same; printf '1\n2\n3' > nonl; seq 9 | sed 's/$/\r/' > crlf; printf 'a\0b' > binary
		seq 9 > modehost; seq 9 > modein; seq 9 > modeboth; seq 9 > gone; seq 9 > link; seq 9 > replaced; seq 9 > alone; seq 9 > moved; seq 9 > onlymode
		head -c 1100000 /dev/zero | tr '\0' x > large; seq 9 > touched`)
	l.inside(`for f in clean overlap same modehost modein modeboth gone link; do echo mine >> $f; done; sed -i 's/^3$/&\nmine/' nonl; sed -i '1s/^/mine\r\n/' crlf
		echo x >> binary; echo x >> large; sed -i '9s/$/ mine/' replaced; chmod 755 modein; chmod 700 modeboth; echo mine >> alone; mv moved away; chmod 700 onlymode; echo mine > added; touch touched`)
	l.list() // the originals are kept now
	l.shell(l.ws, `for f in clean modehost modein modeboth large onlymode moved touched; do sed -i '1s/^/theirs\n/' $f; done; sed -i '9s/$/ theirs/' overlap; echo mine >> same; sed -i '1s/^/theirs\n/' same
		sed -i '1s/^/theirs\n/' nonl; printf 'theirs\r\n' >> crlf; echo theirs >> binary; chmod 600 modehost; chmod 600 modeboth
		rm gone; rm link; ln -s clean link; sed '1s/^/theirs\n/' replaced > r; mv r replaced; echo theirs > added`)
	before := l.host()
	list := l.list()
	for path, want := range map[string]bool{"clean": true, "overlap": true, "binary": false, "large": false, "gone": false, "link": false, "added": false, "alone": false, "moved": false} {
		if c := find(t, list, path); c.Mergeable != want || c.Conflict == "" && path != "alone" {
			t.Errorf("%s: mergeable %t, conflict %q", path, c.Mergeable, c.Conflict)
		}
	}
	out := l.apply(Options{Merge: true})
	for _, c := range out.Applied {
		if c.Path == "clean" && !c.merged {
			t.Error("clean was not merged")
		}
	}
	reasons := map[string]string{"binary": "it was binary", "large": "larger than 1 MiB", "gone": "only a file", "link": "only a file", "added": "the host changed it first", "modeboth": "both changed its permissions, from 644 to 600 on the host and to 700 inside", "moved": "only a file", "away": "only a file", "overlap": ""}
	for _, c := range out.Conflicts {
		if why, ok := reasons[c.Path]; !ok || !strings.Contains(c.NotMerged, why) {
			t.Errorf("%s was left: %q, %d overlaps", c.Path, c.NotMerged, c.Overlaps)
		} else {
			delete(reasons, c.Path)
		}
		if want := map[bool]int{true: 1}[c.Path == "overlap"]; c.Overlaps != want {
			t.Errorf("%s has %d overlaps", c.Path, c.Overlaps)
		}
	}
	if len(reasons) > 0 || len(out.Failed) > 0 {
		t.Errorf("not left: %v; failed: %v", reasons, out.Failed)
	}
	got := l.shell(l.ws, `for f in clean same nonl crlf modehost modein replaced alone onlymode; do stat -c '%n %a' $f; cat -A $f | grep -v '^[2-8]\(\^M\)*\$$' | tr '\n' ' '; echo; done`)
	const want = `clean 644
theirs$ 1$ 9$ mine$ 
same 644
theirs$ 1$ 9$ mine$ 
nonl 644
theirs$ 1$ mine 
crlf 644
mine^M$ 1^M$ 9^M$ theirs^M$ 
modehost 600
theirs$ 1$ 9$ mine$ 
modein 755
theirs$ 1$ 9$ mine$ 
replaced 644
theirs$ 1$ 9 mine$ 
alone 644
1$ 9$ mine$ 
onlymode 700
theirs$ 1$ 9$ 
`
	differ(t, "merged", got, want)
	// What the command sees is the merged file.
	if got := l.inside("cat clean touched"); !strings.HasPrefix(got, "theirs\n1\n") || !strings.Contains(got, "9\nmine\n") {
		t.Errorf("inside after the merge: %q", got)
	}
	if out := l.undo(); !out.All() {
		t.Fatalf("not everything was undone: %v", out.Failed)
	}
	differ(t, "after the undo", l.host(), before)
	// Both sides are there again, and so is the conflict: an apply does not overwrite the host's.
	if out := l.apply(Options{}); len(find(t, out.Conflicts, "clean").Conflict) == 0 {
		t.Errorf("after the undo: %s", lines(out.Conflicts))
	}
	if out := l.apply(Options{Merge: true, Want: under(l.ws, "clean")}); !out.All() || l.shell(l.ws, "cat clean") != "theirs\n"+l.shell(l.ws, "seq 9")+"mine\n" {
		t.Errorf("merged again: %s %v", lines(out.Conflicts), out.Failed)
	}
}

// The original is the host's file as the first command saw it, whatever later commands and applies of a part do.
func TestOriginal(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `seq 9 > f; seq 9 > g; seq 9 > during; seq 9 > part; seq 9 > back; mkdir d; seq 9 > d/f`)
	r, err := l.store.Begin(l.ws, DefaultName, []string{l.ws})
	must(t, err)
	l.mounted(r.Layers()[0], `rm back; for f in f g d/f; do sed -i '9s/$/ mine/' $f; done`)
	// The host's edit while the command runs: what the command wrote before is kept, what it writes after is not known.
	must(t, r.Keep())
	l.shell(l.ws, `sed -i '1s/^/theirs\n/' f during`)
	l.mounted(r.Layers()[0], `echo mine >> during`)
	must(t, r.Keep())
	must(t, r.Close())
	must(t, r.Keep()) // too late, and harmless
	list := l.list()
	if c := find(t, list, "f"); !c.Mergeable {
		t.Errorf("f: %q, mergeable %t", c.Conflict, c.Mergeable)
	}
	if c := find(t, list, "during"); c.Mergeable || c.Conflict == "" {
		t.Errorf("during: %q, mergeable %t", c.Conflict, c.Mergeable)
	}
	// Between two commands, of which the second makes the upper file anew. It never saw the host's edit.
	l.shell(l.ws, `sed -i '1s/^/theirs\n/' g back`)
	l.inside(`seq 10 > back; sed -i '5s/$/ again/' g; sed -i '5s/$/ again/' during; sed -i 's/^[19]$/& mine/' part`)
	list = l.list()
	for _, path := range []string{"f", "g", "back", "during"} {
		if c := find(t, list, path); c.Conflict == "" {
			t.Errorf("the host's change of %s would be lost", path)
		}
	}
	// A part of a change is applied: that is no conflict, and the rest can be merged with a later change of the host.
	r = l.resume()
	c := find(t, list, "part")
	old, now, err := r.Contents(c)
	must(t, err)
	p := NewPatch(old.Text, now.Text)
	out, err := r.Apply(Options{Want: under(l.ws, "part"), Patched: map[string]Patched{c.Abs(): {p.With(p.Hunks[:1]), c}}})
	must(t, err)
	must(t, r.Close())
	if c := find(t, l.list(), "part"); !out.All() || c.Conflict != "" {
		t.Errorf("after a part: %q, %v", c.Conflict, out.Failed)
	}
	l.shell(l.ws, `sed -i '5s/$/ theirs/' part`)
	if c := find(t, l.list(), "part"); !c.Mergeable {
		t.Errorf("after a part and a change of the host: %q", c.Conflict)
	}
	l.apply(Options{Merge: true})
	const want = "theirs\n1\n2\n3\n4\n5 again\n6\n7\n8\n9 mine\n1 mine\n2\n3\n4\n5 theirs\n6\n7\n8\n9 mine\ntheirs\n1\n2\n3\n4\n5\n6\n7\n8\n9 mine\n1\n2\n3\n4\n5\n6\n7\n8\n9 mine\n"
	if got := l.shell(l.ws, `cat back g part f d/f`); got != "theirs\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"+want {
		t.Errorf("merged: %q", got)
	}
	// The originals of what was applied and discarded are dropped, and a new change begins with a new one.
	l.discard(under(l.ws, "during"))
	l.shell(l.ws, `seq 9 > f; seq 9 > g`)
	l.list()
	if names, _ := filepath.Glob(l.resumeFile("originals/*")); len(names) > 0 {
		t.Errorf("left: %v of %s", names, lines(l.list()))
	}
	l.discard(nil)
	l.inside(`echo mine >> f`)
	l.shell(l.ws, `sed -i '1s/^/new\n/' f`)
	if out := l.apply(Options{Merge: true}); !out.All() || !strings.HasPrefix(l.shell(l.ws, "cat f"), "new\n1\n") {
		t.Errorf("the second life of f: %s", lines(out.Conflicts))
	}
}

// Undo brings back the original of the older file, of which a later command's is made.
func TestOriginalAfterUndo(t *testing.T) {
	l := newLab(t, `seq 9 > f`)
	l.inside(`echo one >> f`)
	l.apply(Options{})
	l.inside(`echo two >> f`)
	l.undo()
	if c := find(t, l.list(), "f"); c.Conflict != "" {
		t.Errorf("after the undo: %s", c.Conflict)
	}
	l.shell(l.ws, `sed -i '1s/^/theirs\n/' f`)
	if out := l.apply(Options{Merge: true}); !out.All() {
		t.Errorf("left: %s", lines(out.Conflicts))
	}
	if got := l.shell(l.ws, "cat f"); !strings.HasPrefix(got, "theirs\n1") || !strings.HasSuffix(got, "9\none\ntwo\n") {
		t.Errorf("merged: %q", got)
	}
}

// A merge of a protected file needs the yes that any change of it needs.
func TestMergeProtected(t *testing.T) {
	l := newLab(t, `seq 9 > .envrc`)
	l.inside(`echo mine >> .envrc`)
	l.list()
	l.shell(l.ws, `sed -i '1s/^/theirs\n/' .envrc`)
	o := Options{Merge: true, Protect: func(abs string) string {
		if filepath.Base(abs) == ".envrc" {
			return "test"
		}
		return ""
	}}
	if out := l.apply(o); len(out.Protected) != 1 || strings.Contains(l.shell(l.ws, "cat .envrc"), "mine") {
		t.Errorf("without a yes: %+v", out)
	}
	o.Allow = under(l.ws, ".envrc")
	if out := l.apply(o); !out.All() || l.shell(l.ws, "cat .envrc") != "theirs\n"+l.shell(l.ws, "seq 9")+"mine\n" {
		t.Errorf("with a yes: %+v", out)
	}
}

// Two reviews of a workspace have originals of their own.
func TestOriginalsOfTwoReviews(t *testing.T) {
	l := newLab(t, `seq 9 > f`)
	other := *l
	r, err := l.store.Begin(l.ws, "other", []string{l.ws})
	must(t, err)
	l.mounted(r.Layers()[0], `echo other >> f`)
	must(t, r.Keep())
	must(t, r.Close())
	l.inside(`sed -i '5s/$/ mine/' f`)
	l.list()
	if out := l.apply(Options{}); !out.All() {
		t.Fatalf("left: %s", lines(out.Conflicts))
	}
	r, err = other.store.Resume(l.ws, "other")
	must(t, err)
	defer r.Close()
	out, err := r.Apply(Options{Merge: true})
	must(t, err)
	if got := l.shell(l.ws, "cat f"); !out.All() || got != "1\n2\n3\n4\n5 mine\n6\n7\n8\n9\nother\n" {
		t.Errorf("%q, %s", got, lines(out.Conflicts))
	}
}

// What a command left, or the host puts there, in place of a file while it is merged: no link is followed, no pipe waited for, and
// nothing but a merge of the listed files is applied.
func TestMergeHostile(t *testing.T) {
	testenv.AlsoAsUser(t)
	for _, what := range []string{"ln -s $SECRET f", "mkfifo f", "mkdir f", "cp $SECRET f", "true"} {
		for _, side := range []string{"upper", "host"} {
			l := newLab(t, `seq 9 > f`)
			l.shell(l.dir, `echo secret > secret`)
			l.inside(`echo mine >> f`)
			l.list()
			l.shell(l.ws, `sed -i '1s/^/theirs\n/' f`)
			r := l.resume()
			list, err := r.List(nil, nil)
			must(t, err)
			c := find(t, list, "f")
			dir := map[string]string{"upper": r.Layers()[0].Upper, "host": l.ws}[side]
			l.shell(dir, "SECRET="+l.dir+"/secret; rm -f f; "+what)
			before := l.shell(l.ws, treeScript)
			if _, err := r.Merge(c); err == nil {
				t.Errorf("%s in place of the %s file: it was merged", what, side)
			}
			// The same between the list and the change.
			c.merged = true
			out := &Outcome{}
			a, err := r.newApplier(out)
			must(t, err)
			must(t, a.all(jobsOf([]*Change{c})))
			must(t, a.close())
			if len(out.Failed) != 1 || len(out.Applied) > 0 {
				t.Errorf("%s in place of the %s file: applied %s, failed %v", what, side, lines(out.Applied), out.Failed)
			}
			differ(t, "the host", l.shell(l.ws, treeScript), before)
			must(t, r.Close())
		}
	}
}

// The folder of originals, and the files to be copied, are exchanged all the time while originals are kept. Each is one that the host had, or none.
func TestKeepRaces(t *testing.T) {
	testenv.AlsoAsUser(t)
	l := newLab(t, `for i in $(seq 40); do seq 9 > $i; done; echo secret > ../secret; ln -s ../secret link; mkfifo pipe`)
	r, err := l.store.Begin(l.ws, DefaultName, []string{l.ws})
	must(t, err)
	l.mounted(r.Layers()[0], `for i in $(seq 40); do echo mine >> $i; done`)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 1; ; n = n%40 + 1 {
			select {
			case <-stop:
				return
			default:
			}
			for _, other := range []string{"link", "pipe"} {
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(l.ws, other), unix.AT_FDCWD, filepath.Join(l.ws, stageName(n)), unix.RENAME_EXCHANGE)
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(l.ws, other), unix.AT_FDCWD, filepath.Join(l.ws, stageName(n)), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 50 {
		must(t, os.RemoveAll(r.originalsDir()))
		must(t, r.Keep())
		for n := range 40 {
			o := r.readOriginal(&r.meta.Roots[0], stageName(n+1))
			if o != nil && o.hasText() && string(o.text) != "1\n2\n3\n4\n5\n6\n7\n8\n9\n" {
				t.Errorf("an original is %q", o.text)
			}
		}
	}
	close(stop)
	<-stopped
	must(t, r.Close())
}

// A torn original, as after a crash of the machine, is none; one that was not completed goes.
func TestTornOriginal(t *testing.T) {
	l := newLab(t, `seq 9 > f; seq 9 > g`)
	l.inside(`echo mine >> f; echo mine >> g`)
	l.list()
	name := l.resumeFile("originals/" + originalName(l.ws, "f"))
	text, err := os.ReadFile(name)
	must(t, err)
	must(t, os.WriteFile(name, text[:len(text)-3], 0o600))
	must(t, os.WriteFile(l.resumeFile("originals/"+newOriginal), []byte("half"), 0o600))
	l.shell(l.ws, `sed -i '1s/^/theirs\n/' f g`)
	list := l.list()
	if c := find(t, list, "f"); c.Mergeable || c.Conflict == "" {
		t.Errorf("f: %q, mergeable %t", c.Conflict, c.Mergeable)
	}
	if c := find(t, list, "g"); !c.Mergeable {
		t.Error("g is not mergeable")
	}
	if names, _ := filepath.Glob(l.resumeFile("originals/*")); len(names) != 2 {
		t.Errorf("left: %v", names)
	}
}

// A process that keeps originals is killed at any moment. What it has left is used, or made anew.
func TestKeepKilled(t *testing.T) {
	testenv.AlsoAsUser(t)
	const files = 150
	l := newLab(t, `for i in $(seq 150); do seq 99 > $i; done`)
	l.inside(`for i in $(seq 150); do echo mine >> $i; done`)
	took, partly := time.Duration(0), 0
	for n := range 10 {
		must(t, os.RemoveAll(l.resumeFile("originals")))
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killedVariable+"=keep\n"+l.store.dir+"\n"+l.ws)
		if n == 0 {
			began := time.Now()
			must(t, c.Run())
			took = time.Since(began)
		} else {
			must(t, c.Start())
			time.Sleep(took * time.Duration(n) / 10) // the moment of the kill
			must(t, c.Process.Kill())
			_ = c.Wait()
		}
		if names, _ := filepath.Glob(l.resumeFile("originals/*")); len(names) > 0 && len(names) < files {
			partly++
		}
		r := l.resume()
		for i := range files {
			if o := r.readOriginal(&r.meta.Roots[0], stageName(i+1)); o == nil || !o.hasText() {
				t.Fatalf("after kill %d, %d has no original", n, i+1)
			}
		}
		must(t, r.Close())
	}
	t.Logf("of 9 kills, %d left a part of the originals", partly)
}

// Originals are bounded in size.
func TestOriginalsAreBounded(t *testing.T) {
	l := newLab(t, `head -c 1000000 /dev/zero | tr '\0' x > 1; for i in $(seq 2 70); do cp 1 $i; done`)
	l.inside(`for i in $(seq 70); do echo mine >> $i; done`)
	r := l.resume()
	defer r.Close()
	kept := 0
	for n := range 70 {
		if o := r.readOriginal(&r.meta.Roots[0], stageName(n+1)); o == nil {
			t.Errorf("%d has none", n+1)
		} else if o.hasText() {
			kept++
		} else if !strings.Contains(o.NoText, "64 MiB") {
			t.Errorf("%d has no text: %s", n+1, o.NoText)
		}
	}
	if kept != maxOriginals/1_000_000 {
		t.Errorf("%d are kept", kept)
	}
	if err := r.Keep(); err != nil || errors.Is(err, errChanged) {
		t.Error(err)
	}
}

// N5: an apply that merges, and its undo, are killed at any moment. Each file is the host's or the merge, and both sides are still there
// to repeat it. CLOCHE_TEST_REVIEW_KILLS is how often.
func TestMergeKilled(t *testing.T) {
	testenv.AlsoAsUser(t)
	kills, err := strconv.Atoi(os.Getenv("CLOCHE_TEST_REVIEW_KILLS"))
	if err != nil {
		kills = 4
	}
	l := newLab(t, `for i in $(seq 120); do seq 9 > $i; done`)
	l.inside(`for i in $(seq 120); do echo mine >> $i; done`)
	l.shell(l.ws, `for i in $(seq 120); do sed -i '1s/^/theirs\n/' $i; done`)
	const theirs, inside = "theirs\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\nmine\n"
	const merged = theirs + "mine\n"
	text := func(dir, name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		return string(text)
	}
	// check reports how many files are merged.
	check := func(when string) (n int) {
		for i := range 120 {
			switch got := text(l.ws, stageName(i+1)); got {
			case theirs:
				// Its side of the command is in the review.
				if got := text(filepath.Join(l.store.folder(l.ws, DefaultName), "layers/0/upper"), stageName(i+1)); got != inside {
					t.Fatalf("%s: %d is the host's, and inside %q", when, i+1, got)
				}
			case merged:
				n++
			default:
				t.Fatalf("%s: %d is %q", when, i+1, got)
			}
		}
		return n
	}
	took := map[string]time.Duration{"merge": time.Second / 4, "undo": time.Second / 4}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	partly := 0
	for n := range kills {
		what := []string{"merge", "undo"}[n%2]
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killedVariable+"="+what+"\n"+l.store.dir+"\n"+l.ws)
		began := time.Now()
		must(t, c.Start())
		time.Sleep(time.Duration(random.Int64N(int64(took[what])))) // the moment of the kill
		must(t, c.Process.Signal(unix.SIGKILL))
		_ = c.Wait()
		if c.ProcessState.Success() {
			took[what] = time.Since(began)
		} else if c.ProcessState.ExitCode() > 0 {
			t.Fatalf("the %s failed before it was killed", what)
		}
		l.list() // recovers
		when := fmt.Sprintf("after kill %d of %s", n, what)
		if m := check(when); m > 0 && m < 120 {
			partly++
		}
		if what == "merge" {
			if out := l.apply(Options{Merge: true}); !out.All() {
				t.Fatalf("%s: the repeated one left %s and %v", when, lines(out.Conflicts), out.Failed)
			}
			if m := check("then merged"); m != 120 {
				t.Fatalf("%s: then %d are merged", when, m)
			}
			// One apply has all of them again, for the next undo.
			l.shell(l.ws, `for i in $(seq 120); do seq 9 > $i; done`)
			l.discard(nil)
			must(t, removeAll(l.store.folder(l.ws, DefaultName)))
			l.inside(`for i in $(seq 120); do echo mine >> $i; done`)
			l.shell(l.ws, `for i in $(seq 120); do sed -i '1s/^/theirs\n/' $i; done`)
			if out := l.apply(Options{Merge: true}); !out.All() {
				t.Fatalf("the merge for the undo left %s", lines(out.Conflicts))
			}
			continue
		}
		r := l.resume()
		if _, err := r.Undo(); err != nil && !errors.Is(err, ErrNothingToUndo) {
			t.Fatal(err)
		}
		must(t, r.Close())
		if m := check("then undone"); m != 0 {
			t.Fatalf("%s: then %d are merged", when, m)
		}
		for _, c := range l.list() {
			if c.Conflict == "" || !c.Mergeable {
				t.Fatalf("%s, and an undo, %s: conflict %q, mergeable %t", when, c.Path, c.Conflict, c.Mergeable)
			}
		}
	}
	t.Logf("of %d kills, %d left a part merged", kills, partly)
}

// A store on another file system merges and takes back as well.
func TestMergeFarStore(t *testing.T) {
	far := onTmpfs(t, "64m")
	if far == "" {
		return
	}
	l := newLab(t, `seq 9 > f`)
	l.store = Open(far + "/review")
	l.inside(`echo mine >> f`)
	l.shell(l.ws, `sed -i '1s/^/theirs\n/' f`)
	before := l.host()
	if out := l.apply(Options{Merge: true}); !out.All() || l.shell(l.ws, "cat f") != "theirs\n"+l.shell(l.ws, "seq 9")+"mine\n" {
		t.Errorf("left %s, failed %v", lines(out.Conflicts), out.Failed)
	}
	if out := l.undo(); !out.All() {
		t.Errorf("undo: %v", out.Failed)
	}
	differ(t, "after the undo", l.host(), before)
	if c := find(t, l.list(), "f"); !c.Mergeable {
		t.Errorf("after the undo: conflict %q, not mergeable", c.Conflict)
	}
}
