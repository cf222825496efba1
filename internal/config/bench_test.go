package config

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkLoad is what a command pays for its policy: without any file, and with
// a user's and a project's.
func BenchmarkLoad(b *testing.B) {
	b.Run("presets", func(b *testing.B) { benchmarkLoad(b, nil) })
	b.Run("files", func(b *testing.B) {
		benchmarkLoad(b, map[string]string{
			"config/" + UserFileName: "version: 1\npaths: {write: [\"?~/.cache/go-build\"]}\nlimits: {time: 10m}\n",
			"ws/" + ProjectFileName:  "version: 1\npaths:\n  hide: [secrets]\n  protect: [Makefile]\nnetwork: none\n",
		})
	})
}

func benchmarkLoad(b *testing.B, files map[string]string) {
	dir := b.TempDir()
	opts := Options{Workspace: filepath.Join(dir, "ws"), Home: dir, ConfigDir: filepath.Join(dir, "config"), DataDir: filepath.Join(dir, "data")}
	for _, d := range []string{opts.Workspace, opts.ConfigDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			b.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(opts); err != nil {
			b.Fatal(err)
		}
	}
}
