package resolve_test

import (
	"testing"

	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/resolve"
	"github.com/cloche-dev/cloche/policy"
)

// BenchmarkResolve is what the plan of one command costs on this machine: of the
// default policy, of one without presets, and with a thousand rules more.
func BenchmarkResolve(b *testing.B) {
	dir := b.TempDir()
	more := make([]string, 1000)
	for i := range more {
		more[i] = "?~/.cloche-bench/" + string(rune('a'+i%26)) + "/" + string(rune('a'+i/26))
	}
	for name, p := range map[string]policy.Policy{
		"workspace":  policy.Workspace(dir),
		"bare":       policy.Policy{Reads: policy.ReadsHost}.With(policy.AllowWrite(dir)),
		"1000 rules": policy.Workspace(dir).With(policy.HidePaths(more...)),
	} {
		b.Run(name, func(b *testing.B) {
			snap, err := machine.Collect(dir)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resolve.Resolve(p, resolve.Request{Workspace: dir, Name: "true"}, snap); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
