package review

import "testing"

// What keeping originals costs at the end of a command that added 20,000 files and changed 200: the first time, and again.
func BenchmarkKeep(b *testing.B) {
	l := newLab(b, `for d in $(seq 100); do mkdir $d; for f in $(seq 10); do seq $d > $d/$f; done; done`)
	l.inside(`for d in $(seq 100); do for f in $(seq 100); do echo new > $d/new$f; done; mkdir new$d; for f in $(seq 100); do echo new > new$d/$f; done; done`)
	keep := func(b *testing.B, again bool) {
		r := l.resume()
		defer r.Close()
		for b.Loop() {
			if err := r.Keep(); err != nil {
				b.Fatal(err)
			}
			if !again {
				b.StopTimer()
				must(b, removeAll(r.originalsDir()))
				b.StartTimer()
			}
		}
	}
	b.Run("added", func(b *testing.B) { keep(b, true) })
	l.inside(`for d in $(seq 100); do for f in 1 2; do echo mine >> $d/$f; done; done`)
	b.Run("first", func(b *testing.B) { keep(b, false) })
	b.Run("again", func(b *testing.B) { keep(b, true) })
}

// A list of 20,000 added files and 200 changed ones.
func BenchmarkListMostlyAdded(b *testing.B) {
	l := newLab(b, `for d in $(seq 100); do mkdir $d; for f in $(seq 10); do seq $d > $d/$f; done; done`)
	l.inside(`for d in $(seq 100); do for f in $(seq 100); do echo new > $d/new$f; done; mkdir new$d; for f in $(seq 100); do echo new > new$d/$f; done; for f in 1 2; do echo mine >> $d/$f; done; done`)
	for b.Loop() {
		if list := l.list(); len(list) != 20_300 {
			b.Fatalf("%d changes", len(list))
		}
	}
}
