package review

import "testing"

const manyFiles = 20_000

// A list of many changed files of 2 KiB: half changed, the others added, deleted and renamed.
func BenchmarkList(b *testing.B) {
	l := manyChanges(b)
	for b.Loop() {
		if list := l.list(); len(list) < manyFiles {
			b.Fatalf("%d changes", len(list))
		}
	}
}

// An apply of them, and its undo.
func BenchmarkApply(b *testing.B) {
	l := manyChanges(b)
	for b.Loop() {
		if out := l.apply(Options{}); !out.All() {
			b.Fatal(out.Failed)
		}
		b.StopTimer()
		if out := l.undo(); !out.All() {
			b.Fatal(out.Failed)
		}
		b.StartTimer()
	}
}

func manyChanges(b *testing.B) *lab {
	l := newLab(b, `head -c 2000 /dev/urandom | base64 -w 0 > /dev/null
for d in $(seq 200); do mkdir $d; for f in $(seq 75); do echo $d $f > $d/$f; head -c 2000 /dev/zero >> $d/$f; done; done`)
	l.inside(`for d in $(seq 200); do mkdir new$d; for f in $(seq 50); do echo changed >> $d/$f; done
for f in $(seq 51 62); do mv $d/$f new$d/$f; done; for f in $(seq 63 75); do rm $d/$f; done; for f in $(seq 100 125); do echo new > new$d/$f; done; done`)
	return l
}
