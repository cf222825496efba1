package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParsers(t *testing.T) {
	for _, c := range []struct {
		format, text string
		want         results
	}{
		{"junit", `<testsuites><testsuite><testcase name="a.b" status="run" /><testcase name="a.c"><failure>x</failure></testcase>` +
			`<testcase name="a.d"><error>x</error></testcase><testcase name="a.e"><skipped>no</skipped></testcase></testsuite></testsuites>`,
			results{"a.b": passed, "a.c": failed, "a.d": failed, "a.e": skipped}},
		{"go", `{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"x"}
{"Action":"pass","Test":"TestA"}
not an event
{"Action":"run","Test":"TestB"}
{"Action":"fail","Test":"TestB/c"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail"}
`, results{"TestA": passed, "TestB": failed, "TestB/c": failed, "TestC": skipped}},
		{"tap", "1..4\nok 1 - a case\nnot ok 2 - another\n# text\nok 3 - third # SKIP no\nnot ok 4 - fourth # TODO later\nok - no number\nokay\n",
			results{"a case": passed, "another": failed, "third": skipped, "fourth": skipped, "no number": passed}},
	} {
		got, err := parsers[c.format](c.text)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.format, got, err, c.want)
		}
	}
	// A suite that is cut off is not one that passed.
	if _, err := parseJUnit(`<testsuites><testcase name="a"/>`); err == nil {
		t.Error("half a file of JUnit is no error")
	}
}

func TestDifferences(t *testing.T) {
	outside := results{"same": passed, "worse": passed, "skipped inside": passed, "gone": passed, "fails anyway": failed, "better": failed, "was skipped": skipped}
	inside := results{"same": passed, "worse": failed, "skipped inside": skipped, "fails anyway": failed, "better": passed, "was skipped": failed, "only inside": failed}
	want := []difference{
		{"gone", passed, missing}, {"only inside", missing, failed}, {"skipped inside", passed, skipped}, {"was skipped", skipped, failed}, {"worse", passed, failed},
	}
	if got := differences(outside, inside); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is not in the list is new, for the suite, the user and the case alike.
func TestListOfDifferences(t *testing.T) {
	known, err := readKnown("# Page\n\n    not here\n\n## Differences\n\n### A reason\n\nWords.\n\n    cpython  root  test_a a.b.*\n    git both t1 a case\n\n## Later\n\n    nor here\n")
	if err != nil || len(known) != 2 {
		t.Fatal(known, err)
	}
	for _, c := range []struct {
		suite, user, name string
		want              bool
	}{
		{"cpython", "root", "test_a a.b.c", true},
		{"cpython", "user", "test_a a.b.c", false},
		{"git", "root", "test_a a.b.c", false},
		{"cpython", "root", "test_b a.b.c", false},
		{"git", "user", "t1 a case", true},
		{"git", "user", "t1 a case more", false},
	} {
		var u testUser
		u.kind = c.user
		new := unlisted([]difference{{name: c.name}}, &suite{name: c.suite}, u, known)
		if got := len(new) == 0; got != c.want {
			t.Errorf("%v is known: %v", c, got)
		}
	}
	if _, err := readKnown("\n## Differences\n\n    cpython somebody test_a b\n"); err == nil {
		t.Error("a line about no user is no error")
	}
}

// The page can be read, and is about suites that exist.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../" + page)
	if err != nil {
		t.Fatal(err)
	}
	known, err := readKnown(string(text))
	if err != nil {
		t.Fatal(err)
	}
	suites, err := loadSuites("suites", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if !slices.ContainsFunc(suites, func(s *suite) bool { return s.name == k.suite }) {
			t.Errorf("there is no suite %s", k.suite)
		}
	}
	for _, s := range suites {
		if !strings.Contains(string(text), "| "+s.name+" | ") {
			t.Errorf("%s has no result for the suite %s", page, s.name)
		}
	}
	rows := []row{{"bash", "root", "1 pass", "2 pass", 3}}
	again := withTable(withTable(string(text), rows), rows)
	if strings.Count(again, "| bash | root |") != 1 || !strings.Contains(again, "| bash | root | 1 pass | 2 pass | 3 |\n") {
		t.Errorf("the table has not the new row once:\n%s", again)
	}
}
