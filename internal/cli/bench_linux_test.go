package cli

import (
	"testing"
)

// BenchmarkRun is everything that `cloche run` does in its process.
func BenchmarkRun(b *testing.B) {
	for _, backend := range []string{"none", "native", "bwrap"} {
		b.Run(backend, func(b *testing.B) {
			dir := b.TempDir()
			b.Setenv("HOME", dir)
			b.Chdir(dir)
			for b.Loop() {
				if status := Main([]string{"run", "--backend", backend, "--", "/bin/true"}); status != 0 {
					b.Fatalf("status %d", status)
				}
			}
		})
	}
}
