package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// oddTexts are what has to be escaped, or must not be.
var oddTexts = []string{"", "plain", `a "quoted" \ word`, "tab\tline\n\x00\x7f", "<b>&</b>", "päth \u2028 \U0001F514"}

// W8: an event is one line, which reads back as it was, and what people look for in a
// command line is in it as they write it.
func TestEncodeIsOneLine(t *testing.T) {
	line, err := encode(Event{Kind: Start, Time: time.Unix(1e9, 0).UTC(), Argv: oddTexts})
	must(t, err)
	var back Event
	must(t, json.Unmarshal(line, &back))
	if strings.Join(back.Argv, "|") != strings.Join(oddTexts, "|") || strings.Contains(string(line), "\n") || !strings.Contains(string(line), "<b>&</b>") {
		t.Errorf("the line is %s", line)
	}
}

// W8: a time that JSON has no form for is an error, not a line.
func TestEncodeRefusesTime(t *testing.T) {
	if line, err := encode(Event{Time: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Errorf("got %s", line)
	}
}
