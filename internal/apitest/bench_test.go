package apitest

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

// BenchmarkLaunch is what a command of its own costs before its process is
// made: the policy, the machine, the plan and what the backend makes of it.
func BenchmarkLaunch(b *testing.B) {
	dir := b.TempDir()
	b.Chdir(dir)
	for b.Loop() {
		if _, err := cloche.Command(b.Context(), policy.Workspace(dir), "true").Launch(); err != nil {
			b.Fatal(err)
		}
	}
}
