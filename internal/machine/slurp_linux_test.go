package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// slurp reads what package os reads, also where a file says that it is empty.
func TestSlurp(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(long, []byte(strings.Repeat("0123456789", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{long, passwdFile, "/proc/sys/kernel/random/boot_id", "/dev/null", "/proc/self/limits"} {
		want, wantErr := os.ReadFile(file)
		got, err := slurp(file)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %d bytes, %v, want %d, %v", file, len(got), err, len(want), wantErr)
		}
	}
	for _, file := range []string{long + "x", filepath.Dir(long)} {
		if _, err := slurp(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
