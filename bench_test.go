package cloche_test

import (
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/policy"
)

// BenchmarkOpen is what a session costs before its first command.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := cloche.Open(b.Context(), policy.Workspace(dir), cloche.WithWorkspace(dir))
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkPlan is what the plan of one more command costs.
func BenchmarkPlan(b *testing.B) {
	dir := b.TempDir()
	s, err := cloche.Open(b.Context(), policy.Workspace(dir), cloche.WithWorkspace(dir))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		if _, err := s.Command(b.Context(), "true").Plan(); err != nil {
			b.Fatal(err)
		}
	}
}
