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
	words   string
	budget  int
	instead string
}{
	{`the cover\b`, 0, "the mount that hides it"},
	{`what holds\b`, 6, "name what is meant: the rule, the process, the directory"},
	{`(is|are|be) on record`, 22, "is recorded, is logged"},
	{`leads? elsewhere`, 11, "now points to another file"},
	{`(for|as) who\b`, 6, "for callers that"},
	{`\bwho can\b`, 4, "name the process or the user"},
	{`looks? whether`, 4, "checks whether"},
	{`the time is over`, 0, "it timed out"},
	{`files? of variables`, 11, ".env file"},
	{`(is|can be|be) had\b`, 12, "is available, can be opened"},
	{`come(s)? to (its|an) end`, 2, "ends"},
	{`(is|was|are|were) told\b`, 149, "is printed, is reported, receives"},
	{`\bwhoever\b`, 90, "the process that, the user who"},
	{`all the same\b`, 23, "anyway, or nothing"},
	{`\bat hand\b`, 3, "current"},
	{`failed to\b|unable to\b`, 1, "cannot"},
}

// TestPlainWords counts the riddles in comments, strings, pages and scripts.
func TestPlainWords(t *testing.T) {
	forms := make([]*regexp.Regexp, len(riddles))
	for i, r := range riddles {
		forms[i] = regexp.MustCompile(r.words)
	}
	counts := make([]int, len(riddles))
	places := make([][]string, len(riddles))
	for _, file := range textFiles(t) {
		text := unwrapped(t, file)
		for i, form := range forms {
			if n := len(form.FindAllString(text, -1)); n > 0 {
				counts[i] += n
				places[i] = append(places[i], file)
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
