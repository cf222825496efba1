package review

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// The test binary is also the process that is killed.
const killedVariable = "CLOCHE_TEST_REVIEW_KILLED"

func TestMain(m *testing.M) {
	mountTmpfs()
	words := strings.Split(os.Getenv(killedVariable), "\n")
	if len(words) != 3 {
		os.Exit(m.Run())
	}
	r, err := Open(words[1]).Resume(words[2], DefaultName)
	if err == nil && words[0] == "undo" {
		_, err = r.Undo()
	} else if err == nil && words[0] != "keep" {
		_, err = r.Apply(Options{Merge: words[0] == "merge"})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// N5: an apply or an undo that is killed at any moment leaves each file old or new, and can be repeated. The command
// never sees any of it. CLOCHE_TEST_REVIEW_KILLS is how often.
func TestKilled(t *testing.T) {
	testenv.AlsoAsUser(t)
	newLab(t, "").killOften(killsOr(6))
}

// killsOr returns how often something is to be killed.
func killsOr(usual int) int {
	if kills, err := strconv.Atoi(os.Getenv("CLOCHE_TEST_REVIEW_KILLS")); err == nil {
		return kills
	}
	return usual
}

const (
	manyOld = someFiles + `; mkdir many shut; echo s > shut/s; for i in $(seq 150); do echo old $i > many/$i; done`
	manyNew = someChanges + `; for i in $(seq 150); do echo new $i > many/$i; done; mkdir more; for i in $(seq 150); do echo $i > more/$i; done
echo s2 > shut/s; mkdir -m 700 own; echo x > own/x; chmod 500 shut own`
)

// killOften kills applies and undos of many changes.
func (l *lab) killOften(kills int) {
	t := l.t
	t.Helper()
	l.shell(l.ws, manyOld)
	before := l.host()
	l.inside(manyNew)
	want := l.within()
	old, now := entries(before), entries(want)
	random := rand.New(rand.NewPCG(1, uint64(kills)))
	took := map[string]time.Duration{"apply": time.Second / 4, "undo": time.Second / 4}
	killed := 0
	for n := range kills {
		what := []string{"apply", "undo"}[n%2]
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
		} else {
			killed++
		}
		for path, is := range entries(l.host()) {
			if strings.HasPrefix(path, "./.cloche-review-") {
				continue // what waits, if the store is on another file system
			}
			if !slices.Equal(is, old[path]) && !slices.Equal(is, now[path]) && !isHalfMade(is, now[path], old[path]) {
				t.Fatalf("after kill %d of %s: %s is %q, want %q or %q", n, what, path, is, old[path], now[path])
			}
		}
		differ(t, fmt.Sprintf("inside after kill %d of %s", n, what), l.within(), want)
		if names := strings.Fields(l.shell(l.ws, "find . -name '.cloche*'")); len(names) > 0 {
			t.Fatalf("kill %d of %s left on the host: %v", n, what, names)
		}
		if out := l.apply(Options{}); !out.All() {
			t.Fatalf("after kill %d of %s the repeated apply left %s and %v and %v", n, what, lines(out.Conflicts), out.Failed, out.NotCarried)
		}
		differ(t, fmt.Sprintf("the host after kill %d of %s and an apply", n, what), l.host(), want)
		if what == "apply" {
			continue // one apply does it all again for the next undo
		}
		// Back to the beginning.
		l.shell(l.ws, `chmod -R u+rwx .; find . -mindepth 1 -delete; `+manyOld)
		l.discard(nil)
		must(t, removeAll(l.store.folder(l.ws, DefaultName)))
		l.inside(manyNew)
	}
	t.Logf("%d of %d were killed before their end", killed, kills)
	if kills > 20 && killed < kills/3 {
		t.Errorf("only %d of %d were killed before their end", killed, kills)
	}
}

// entries maps the paths of treeScript to what it prints of them.
func entries(tree string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.SplitSeq(tree, "\n") {
		path, rest, ok := strings.Cut(line, " ")
		if len(path) == 64 { // a sum
			path, rest = strings.TrimSpace(rest), path
		}
		if ok {
			out[path] = append(out[path], rest)
		}
	}
	return out
}

// isHalfMade reports whether a new folder has not got its mode yet, which comes when everything is in it.
func isHalfMade(is, now, old []string) bool {
	isFolder := func(lines []string) bool { return len(lines) == 1 && strings.HasPrefix(lines[0], "d ") }
	return isFolder(is) && (isFolder(now) || isFolder(old))
}
