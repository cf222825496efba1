package sysprog

import (
	"encoding/json"
	"unicode/utf8"
)

// text is a string that survives JSON also where it is not UTF-8, as a path
// need not be: it is then an object with the bytes.
type text string

type rawText struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements [json.Marshaler].
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(rawText{[]byte(t)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var raw rawText
		err := json.Unmarshal(b, &raw)
		*t = text(raw.Bytes)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// wireArg is an Arg as JSON has it.
type wireArg struct {
	Kind  Kind   `json:"kind"`
	Value uint64 `json:"value,omitempty"`
	Text  text   `json:"text,omitempty"`
	Data  []byte `json:"data,omitempty"`
	List  []text `json:"list,omitempty"`
	Note  text   `json:"note,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (a Arg) MarshalJSON() ([]byte, error) {
	w := wireArg{Kind: a.Kind, Value: a.Value, Note: text(a.Note)}
	if a.Kind == KindString {
		w.Text = text(a.Text)
	} else {
		w.Data = []byte(a.Text)
	}
	for _, s := range a.List {
		w.List = append(w.List, text(s))
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *Arg) UnmarshalJSON(b []byte) error {
	var w wireArg
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*a = Arg{Kind: w.Kind, Value: w.Value, Text: string(w.Text) + string(w.Data), Note: string(w.Note)}
	for _, s := range w.List {
		a.List = append(a.List, string(s))
	}
	return nil
}
