package audit

import (
	"bytes"
	"encoding/json"
)

// encode renders an event as one line without its newline. Characters of HTML stay as they
// are: command lines are full of them.
func encode(e Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
