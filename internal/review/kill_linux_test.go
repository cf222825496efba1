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
	words := strings.Split(os.Getenv(killedVariable), "\n")
	if len(words) != 3 {
		os.Exit(m.Run())
	}
	r, err := Open(words[1]).Resume(words[2], DefaultName)
	if err == nil && words[0] == "undo" {
		_, err = r.Undo()
	} else if err == nil {
		_, err = r.Apply(Options{})
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
	kills, err := strconv.Atoi(os.Getenv("CLOCHE_TEST_REVIEW_KILLS"))
	if err != nil {
		kills = 6
	}
	l := newLab(t, someFiles+`; mkdir many; for i in $(seq 150); do echo old $i > many/$i; done`)
	before := l.host()
	l.inside(someChanges + `; for i in $(seq 150); do echo new $i > many/$i; done; mkdir more; for i in $(seq 150); do echo $i > more/$i; done`)
	want := l.within()
	old, now := entries(before), entries(want)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
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
			if !slices.Equal(is, old[path]) && !slices.Equal(is, now[path]) && !isHalfMade(is, now[path], old[path]) {
				t.Fatalf("after kill %d of %s: %s is %q, want %q or %q", n, what, path, is, old[path], now[path])
			}
		}
		differ(t, fmt.Sprintf("inside after kill %d of %s", n, what), l.within(), want)
		if what == "apply" {
			if out := l.apply(Options{}); !out.All() {
				t.Fatalf("after kill %d the repeated apply left %s and %v and %v", n, lines(out.Conflicts), out.Failed, out.NotCarried)
			}
			differ(t, fmt.Sprintf("the host after kill %d and a repeated apply", n), l.host(), want)
			// One apply does it all again for the next undo.
			continue
		}
		if out := l.apply(Options{}); !out.All() {
			t.Fatalf("after kill %d of an undo the apply left %s and %v", n, lines(out.Conflicts), out.Failed)
		}
		differ(t, fmt.Sprintf("the host after kill %d of an undo and an apply", n), l.host(), want)
		// Back to the beginning.
		l.shell(l.ws, `find . -mindepth 1 -delete; `+someFiles+`; mkdir many; for i in $(seq 150); do echo old $i > many/$i; done`)
		l.discard(nil)
		must(t, removeAll(l.store.folder(l.ws, DefaultName)))
		l.inside(someChanges + `; for i in $(seq 150); do echo new $i > many/$i; done; mkdir more; for i in $(seq 150); do echo $i > more/$i; done`)
	}
	if kills > 20 && killed < kills/3 {
		t.Errorf("only %d of %d were killed before their end", killed, kills)
	}
	if names := strings.Fields(l.shell(l.ws, "find . -name '.cloche*'")); len(names) > 0 {
		t.Errorf("left on the host: %v", names)
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
