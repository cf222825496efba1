package doclint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// riddles are words that a reader has to decode, how often the tree still has them, and what
// to write instead. A budget only goes down: lower it when you remove some.
var riddles = []struct {
	words   []string
	budget  int
	instead string
}{
	{[]string{"the cover "}, 0, "the mount that hides it"},
	{[]string{"what holds"}, 0, "name what is meant: the rule, the process, the directory"},
	{[]string{"is on record", "are on record", "be on record"}, 2, "is recorded, is logged"},
	{[]string{"lead elsewhere", "leads elsewhere"}, 1, "now points to another file"},
	{[]string{" for who ", " as who "}, 0, "for callers that"},
	{[]string{"who can "}, 1, "name the process or the user"},
	{[]string{"look whether", "looks whether"}, 0, "checks whether"},
	{[]string{"the time is over"}, 0, "it timed out"},
	{[]string{"file of variables", "files of variables"}, 0, ".env file"},
	{[]string{" is had", " be had"}, 0, "is available, can be opened"},
	{[]string{"come to its end", "comes to its end", "come to an end", "comes to an end"}, 0, "ends"},
	{[]string{"is told", "was told", "are told", "were told"}, 1, "is printed, is reported, receives"},
	{[]string{"whoever"}, 35, "the process that, the user who"},
	{[]string{"all the same"}, 1, "anyway, or nothing"},
	{[]string{" at hand"}, 0, "current"},
	{[]string{"failed to ", "unable to "}, 1, "cannot"},
}

// TestPlainWords counts the riddles in comments, strings, pages and scripts.
func TestPlainWords(t *testing.T) {
	counts := make([]int, len(riddles))
	places := make([][]string, len(riddles))
	for _, file := range textFiles(t) {
		text := unwrapped(t, file)
		for i, r := range riddles {
			for _, w := range r.words {
				if n := strings.Count(text, w); n > 0 {
					counts[i] += n
					places[i] = append(places[i], file)
				}
			}
		}
	}
	for i, r := range riddles {
		switch {
		case counts[i] > r.budget:
			t.Errorf("%q occurs %d times, at most %d are allowed; write %q instead (files: %s)", r.words, counts[i], r.budget, r.instead, strings.Join(places[i], " "))
		case counts[i] < r.budget:
			t.Logf("%q occurs %d times: lower its budget from %d", r.words, counts[i], r.budget)
		}
	}
}

// textFiles are the files of the repository that people read, but this one.
func textFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "vendor" || len(name) > 1 && strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		ext := filepath.Ext(p)
		inScripts := filepath.Dir(p) == "scripts" && !d.IsDir()
		if (ext == ".go" || ext == ".md" || inScripts) && p != "internal/doclint/words_test.go" && p != "CHANGELOG.md" {
			files = append(files, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// unwrapped returns the words of a file in lower case, with one space between two. Line
// breaks and the marks of comments hide no words then.
func unwrapped(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(strings.ToLower(string(b)))
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "//" || w == "#" }), " ")
}

// TestSleepsSayWhy finds tests that sleep: a test that waits for something calls
// testenv.Eventually, which takes as long as the machine needs. A sleep that is part of what
// is tested has a comment on its line.
func TestSleepsSayWhy(t *testing.T) {
	for _, file := range textFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			if code, comment, _ := strings.Cut(line, "//"); strings.Contains(code, "time.Sleep(") && strings.TrimSpace(comment) == "" {
				t.Errorf("%s:%d: poll with testenv.Eventually, or say in a comment on this line why the test sleeps", file, n)
			}
		}
	}
}

// TestScriptsReadPipesToTheEnd finds scripts in which a pipe ends in a program that stops reading
// early. The program before it may then die by SIGPIPE, and under pipefail the pipe fails, but only
// if that program is slow.
func TestScriptsReadPipesToTheEnd(t *testing.T) {
	early := regexp.MustCompile(`\|\s*(grep -[a-zA-Z]*q|head\b|sed -n '?[0-9$p]*q)`)
	scripts, err := filepath.Glob("scripts/*")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, file := range append(scripts, ".ci/run", "bench/run") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if early.MatchString(line) && strings.Contains(string(text), "pipefail") {
				t.Errorf("%s:%d: %s: the pipe ends before its input does; read all of it (grep … >/dev/null, sed -n 1,9p)", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}
