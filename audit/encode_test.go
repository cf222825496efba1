package audit

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"
)

// viaJSON is how the events of all logs were meant to be written.
func viaJSON(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	must(t, enc.Encode(v))
	return strings.TrimSuffix(b.String(), "\n")
}

// oddTexts are what has to be escaped, or must not be.
var oddTexts = []string{"", "plain", `a "quoted" \ word`, "tab\tline\n\x00\x7f", "<b>&</b>", "päth \u2028 \U0001F514", "bad \xff utf8"}

// Generate makes an event whose fields are set at random; each kind of field is.
func (Event) Generate(r *rand.Rand, _ int) reflect.Value {
	v := reflect.New(reflect.TypeFor[Event]()).Elem()
	randomize(r, v)
	v.FieldByName("Time").Set(reflect.ValueOf(time.Unix(r.Int63n(1<<33), r.Int63n(1e9)).UTC()))
	return v
}

func randomize(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(oddTexts[r.Intn(len(oddTexts))])
	case reflect.Bool:
		v.SetBool(r.Intn(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int63n(5) - 2)
	case reflect.Uint64:
		v.SetUint(r.Uint64())
	case reflect.Pointer:
		if r.Intn(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomize(r, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.Intn(3), 3))
		for i := range v.Len() {
			randomize(r, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				randomize(r, v.Field(i))
			}
		}
	default:
		panic("an event has a field of a new kind: " + v.Kind().String())
	}
}

// W8: lines are what package json makes of events, whatever is in them.
func TestEncodeIsJSON(t *testing.T) {
	same := func(e Event) bool {
		got, err := encode(e)
		want := viaJSON(t, e)
		if err != nil || string(got) != want {
			t.Errorf("got  %s (%v)\nwant %s", got, err, want)
			return false
		}
		return true
	}
	if err := quick.Check(same, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
	same(Event{})
}

// W8: a time that JSON has no form for is an error, not a line.
func TestEncodeRefusesTime(t *testing.T) {
	if line, err := encode(Event{Time: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Errorf("got %s", line)
	}
}

// W8: a head is read as it was written, and as any JSON.
func TestHeadForms(t *testing.T) {
	h := head{Format: headFormat, Count: 123456789012, Hash: genesis, File: "audit-2031-03-01.jsonl", Size: 77}
	if got := string(h.encode()); got != viaJSON(t, h) {
		t.Errorf("encoded as %s, want %s", got, viaJSON(t, h))
	}
	other, err := json.MarshalIndent(h, "", " ")
	must(t, err)
	for _, text := range []string{string(h.encode()), string(other)} {
		if got, ok := parseHead([]byte(text)); !ok || got != h {
			t.Errorf("%s is read as %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "{", string(h.encode()[1:]), strings.TrimSuffix(string(h.encode()), "}"), string(h.encode()) + "x",
		strings.Replace(string(h.encode()), "77", "x", 1), strings.Replace(string(h.encode()), "77", "-", 1)} {
		if got, ok := parseHead([]byte(text)); ok {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
