package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N14: the command cloche starts cloche-https in its own place, with the same arguments and descriptors.
func TestClocheStartsIt(t *testing.T) {
	testenv.Need(t, "go", "userns")
	bin := t.TempDir()
	build := func(name string) {
		t.Helper()
		c := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", bin+"/"+name, "../"+name)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	const value = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	run := func() (stdout, stderr, report string, err error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "report")
		to, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		c := exec.Command(bin+"/cloche", "run", "--report-fd", "3", "--secret", "TOKEN@api.example.com", "--", "sh", "-c", "echo $TOKEN; exit 7")
		c.Dir, c.ExtraFiles = t.TempDir(), []*os.File{to}
		c.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "TOKEN=" + value}
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		err = c.Run()
		text, _ := os.ReadFile(file)
		return out.String(), errs.String(), string(text), err
	}
	build("cloche")
	stdout, stderr, _, err := run()
	if code := exitCode(err); code != 125 || stdout != "" || !strings.Contains(stderr, "the program cloche-https is neither beside cloche nor in PATH; install it beside cloche: go install ") {
		t.Errorf("without it: status %d, %q %q", code, stdout, stderr)
	}
	build("cloche-https")
	stdout, stderr, report, err := run()
	if code := exitCode(err); code != 7 || !strings.HasPrefix(stdout, "ghp_") || strings.TrimSpace(stdout) == value {
		t.Errorf("with it: status %d, %q %q", code, stdout, stderr)
	}
	if !strings.Contains(report, `"ran":true`) || strings.Contains(report+stdout+stderr, value) {
		t.Errorf("the report: %s", report)
	}
}

func exitCode(err error) int {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return 0
}
