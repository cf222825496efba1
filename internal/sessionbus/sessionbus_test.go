package sessionbus

import "testing"

// The bus, and a program that answers on it, may send anything.
func FuzzAnswered(f *testing.F) {
	f.Add([]byte{5, 1, 'u', 0, 1, 0, 0, 0})
	f.Add([]byte{8, 1, 'g', 0, 255, 0, 0, 0, 8, 1, 'g', 0})
	f.Fuzz(func(_ *testing.T, fields []byte) { answered(fields) })
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 'a', 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{1, 's', 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 'x', 0, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []func(*Reader){
			func(r *Reader) { r.Texts() }, func(r *Reader) { r.Text() }, func(r *Reader) { r.Signature(); r.Align(8); r.Bytes() },
		} {
			r := NewReader(body)
			read(r)
			if r.at > len(body) || r.at < 0 {
				t.Errorf("read %d of %d bytes", r.at, len(body))
			}
		}
	})
}
