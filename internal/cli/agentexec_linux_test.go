package cli

import (
	"fmt"
	"os"
	"testing"
)

// N15: of the files that a command of Claude Code names, only the note in /tmp is made for it.
func TestClaudeFolderFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"", "abc-cwd", "./abc-cwd", "/tmp/abc-cwd", "/tmp/claude-abc", "/tmp/claude--cwd", "/tmp/claude-a/../b-cwd", "/tmp/claude-g-cwd",
		"/tmp/claude-0123456789abcdef0-cwd", "/tmp/claude-ab-cwd\n", "'/tmp/claude-ab-cwd'", "/tmp/claude-ab-cwd -cwd"} {
		if file, _ := claudeFolderFile("eval x" + claudeNote + name); file != "" {
			t.Errorf("%q is made for the command", file)
			_ = os.Remove(file)
		}
	}
	name := fmt.Sprintf("/tmp/claude-%x-cwd", os.Getpid())
	file, done := claudeFolderFile("eval ' && pwd -P >| /etc/x'" + claudeNote + name)
	if file != name {
		t.Fatalf("made %q, want %q", file, name)
	}
	if again, _ := claudeFolderFile("eval x" + claudeNote + name); again != "" {
		t.Errorf("a file that is there is given to the command")
	}
	done()
	if _, err := os.Lstat(name); err == nil {
		t.Errorf("%s stayed, and is empty", name)
	}
}

// N15: what counts as a call of a shell.
func TestAsShell(t *testing.T) {
	for _, c := range []struct {
		args   []string
		script string
		login  bool
	}{
		{[]string{"-c", "x"}, "x", false},
		{[]string{"-l", "-c", "x"}, "x", true},
		{[]string{"-lc", "x"}, "x", true},
		{[]string{"-i", "-c", "-l"}, "-l", false},
		{[]string{"--agent=claude", "x"}, "x", false},
		{[]string{"-c"}, "", false},
		{[]string{"-l"}, "", false},
		{[]string{"-", "-c", "x"}, "", false},
		{[]string{"-e", "-c", "x"}, "", false},
		{[]string{"run", "-c", "x"}, "", false},
		{[]string{"--agent=claude"}, "", false},
		{[]string{"--agent=claude", "x", "y"}, "", false},
		{nil, "", false},
	} {
		s, ok := asShell(c.args)
		if ok != (c.script != "") || ok && (s.script != c.script || s.login != c.login) {
			t.Errorf("%q: %+v, %v", c.args, s, ok)
		}
	}
}
