package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// outcome says how a case ended.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
	missing outcome = "missing"
)

// results has the outcome of each case. A case's name begins with its unit and a space.
type results map[string]outcome

// counts returns the results in words.
func (r results) counts() string {
	n := map[outcome]int{}
	for _, o := range r {
		n[o]++
	}
	return fmt.Sprintf("%d pass, %d fail, %d skip", n[passed], n[failed], n[skipped])
}

// parsers read the output of a unit, by format.
var parsers = map[string]func(string) (results, error){
	"junit": parseJUnit,
	"go":    parseGo,
	"tap":   parseTAP,
}

// parseJUnit reads JUnit's XML, as CPython's test runner writes it.
func parseJUnit(text string) (results, error) {
	found := results{}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "testcase" {
			continue
		}
		var c struct {
			Name    string     `xml:"name,attr"`
			Failure []struct{} `xml:"failure"`
			Error   []struct{} `xml:"error"`
			Skipped []struct{} `xml:"skipped"`
		}
		if err := d.DecodeElement(&c, &start); err != nil {
			return found, err
		}
		switch {
		case len(c.Failure)+len(c.Error) > 0:
			found[c.Name] = failed
		case len(c.Skipped) > 0:
			found[c.Name] = skipped
		default:
			found[c.Name] = passed
		}
	}
}

// parseGo reads the events of `go test -json`.
func parseGo(text string) (results, error) {
	found := results{}
	for line := range strings.Lines(text) {
		var e struct{ Action, Test string }
		if json.Unmarshal([]byte(line), &e) != nil || e.Test == "" {
			continue
		}
		switch e.Action {
		case "pass", "fail", "skip":
			found[e.Test] = outcome(e.Action)
		case "run":
			found[e.Test] = failed // unless it ends otherwise
		}
	}
	return found, nil
}

var tapLine = regexp.MustCompile(`^(not )?ok\b *[0-9]*(?: *-)? *(.*?)(?i:\s+# *(skip|todo).*)?$`)

// parseTAP reads the Test Anything Protocol.
func parseTAP(text string) (results, error) {
	found := results{}
	for line := range strings.Lines(text) {
		m := tapLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		switch {
		case m[3] != "":
			found[m[2]] = skipped
		case m[1] != "":
			found[m[2]] = failed
		default:
			found[m[2]] = passed
		}
	}
	return found, nil
}

// difference is a case that passes outside and not inside, or fails only inside.
type difference struct {
	name            string
	outside, inside outcome
}

// differences returns what is worse inside, by name.
func differences(outside, inside results) []difference {
	var found []difference
	for name, o := range outside {
		i, ok := inside[name]
		if !ok {
			i = missing
		}
		if o == passed && i != passed || o == skipped && i == failed {
			found = append(found, difference{name, o, i})
		}
	}
	for name, i := range inside {
		if _, ok := outside[name]; !ok && i == failed {
			found = append(found, difference{name, missing, i})
		}
	}
	slices.SortFunc(found, func(a, b difference) int { return strings.Compare(a.name, b.name) })
	return found
}

// entry is one line of the list of known differences.
type entry struct {
	suite, user, pattern string
}

// readKnown reads the list from the page: the indented lines below the heading
// "Differences", each with a suite, a user (root, user or both) and a case, in which
// "*" stands for anything.
func readKnown(text string) ([]entry, error) {
	_, list, ok := strings.Cut(text, "\n## Differences\n")
	if !ok {
		return nil, fmt.Errorf("%s: there is no heading %q", page, "## Differences")
	}
	list, _, _ = strings.Cut(list, "\n## ")
	var found []entry
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 4 || !slices.Contains([]string{"root", "user", "both"}, f[1]) {
			return nil, fmt.Errorf("%s: %q is not SUITE root|user|both UNIT CASE", page, strings.TrimSpace(line))
		}
		found = append(found, entry{f[0], f[1], strings.Join(f[2:], " ")})
	}
	return found, nil
}

// covers reports whether the entry is about the case.
func (e entry) covers(suite, user, name string) bool {
	return e.suite == suite && (e.user == user || e.user == "both") && matches(e.pattern, strings.Join(strings.Fields(name), " "))
}

// unit returns the part of a suite that the entry is about.
func (e entry) unit() string {
	unit, _, _ := strings.Cut(e.pattern, " ")
	return unit
}

// matches reports whether the text has the pattern's form.
func matches(pattern, text string) bool {
	form := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")
	ok, err := regexp.MatchString("^(?:"+form+")$", text)
	return err == nil && ok
}
