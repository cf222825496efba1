package notify

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkCalls shows what a call costs that the broker carries out, with and without the
// lock, against the same without a broker: a program that makes N of them.
func BenchmarkCalls(b *testing.B) {
	loops := map[string]string{
		"read":   `for i in range(N): os.close(os.open("file", os.O_RDONLY))`,
		"write":  `for i in range(N): os.close(os.open("file", os.O_WRONLY))`,
		"create": `for i in range(N): os.close(os.open("n", os.O_WRONLY|os.O_CREAT)); os.unlink("n")`,
		"mkdir":  `for i in range(N): os.mkdir("d"); os.rmdir("d")`,
		"rename": `for i in range(N): os.rename("file", "moved"); os.rename("moved", "file")`,
	}
	for name, loop := range loops {
		for _, groups := range []string{"none", "writes", "locked", "reads"} {
			b.Run(name+"/"+groups, func(b *testing.B) {
				dir := realTemp(b)
				if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
					b.Fatal(err)
				}
				script := fmt.Sprintf("cd %s; exec python3 -c 'import os,time; N=%d; t=time.monotonic()\n%s\nprint(time.monotonic()-t)'", dir, b.N, loop)
				config := workspace(dir, protect("**/.envrc"))
				filter := groups
				switch groups {
				case "reads":
					config = workspace(dir, protect("**/.envrc"), hide("**/.env"))
				case "locked": // as in a sandbox, with nobody else at the lock
					config.Lock, filter = filepath.Join(b.TempDir(), "changes.lock"), "writes"
				}
				var out string
				if groups == "none" {
					raw, err := execShell(script, dir).CombinedOutput()
					if err != nil {
						b.Fatalf("%v: %s", err, raw)
					}
					out = string(raw)
				} else {
					out, _ = run(b, config, filter, script)
				}
				var seconds float64
				if _, err := fmt.Sscan(strings.TrimSpace(out), &seconds); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				b.ReportMetric(seconds/float64(b.N)*1e6, "µs/call")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
