package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N11: files are read, written, edited and listed under the same policy.
func TestFiles(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t, "--protect", "kept")
	if got := a.works("read_file", args{"path": "hello.txt", "start_line": 2, "line_count": 1}); got.Data["text"] != "two\n" || got.Data["next_line"] != 3.0 {
		t.Errorf("%v", got.Data)
	}
	a.works("write_file", args{"path": "deep/er/new.txt", "content": "a b a\n"})
	a.fails("edit_file", args{"path": "deep/er/new.txt", "old_text": "a", "new_text": "c"}, "2 times")
	a.fails("edit_file", args{"path": "deep/er/new.txt", "old_text": "zz", "new_text": "c"}, "does not occur")
	a.works("edit_file", args{"path": "deep/er/new.txt", "old_text": "b a", "new_text": "é"})
	if got, err := os.ReadFile(a.ws + "/deep/er/new.txt"); string(got) != "a é\n" {
		t.Errorf("%q, %v", got, err)
	}
	a.fails("write_file", args{"path": a.beside + "/x", "content": ""}, "refused", "request_grant")
	a.fails("write_file", args{"path": "kept", "content": "x"}, "request_grant")
	a.fails("write_file", args{"path": "/tmp/x", "content": "x"})
	a.fails("read_file", args{"path": "sub"}, "list_directory")
	a.put(a.ws+"/binary", "a\x00b")
	a.fails("read_file", args{"path": "binary"}, "no text")
	a.put(a.ws+"/long", strings.Repeat("x", 200<<10)+"\nend\n")
	if got := a.works("read_file", args{"path": "long"}); got.Data["line_cut"] != true || len(got.Data["text"].(string)) > 64<<10 {
		t.Errorf("a long line: %d bytes, %v", len(got.Text), got.Data["line_cut"])
	}
	if got := a.works("read_file", args{"path": "long", "start_line": 2}); got.Data["text"] != "end\n" {
		t.Errorf("after a long line: %v", got.Data)
	}
	must(t, syscall.Mkfifo(a.ws+"/pipe", 0o644))
	a.fails("read_file", args{"path": "pipe"})
	got := a.works("list_directory", args{"path": a.home})
	contains(t, got.Text, ".ssh (hidden)")
	a.put(a.ws+"/sub/.env", "TOKEN=x") // made by somebody else, later
	a.fails("read_file", args{"path": "sub/.env"}, "not visible")
	contains(t, a.works("list_directory", args{"path": "sub"}).Text, ".env (hidden)")
	contains(t, a.works("list_directory", nil).Text, "hello.txt\n", "sub/\n")
}

// What git outside would run cannot be planted by the tools for files either.
func TestFilesAndGit(t *testing.T) {
	testenv.Need(t, "git")
	testenv.AlsoAsUser(t)
	a := newAgent(t)
	a.works("run_command", args{"argv": []string{"git", "init", "-q", "."}})
	a.fails("write_file", args{"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"})
	got := a.use("edit_file", args{"path": ".git/config", "old_text": "[core]", "new_text": "[core]\n\tfsmonitor = ./evil"})
	if config, err := os.ReadFile(a.ws + "/.git/config"); err != nil || strings.Contains(string(config), "evil") || !got.Failed {
		t.Errorf("%s: %q, %v", got.Text, config, err)
	}
	if _, err := os.Stat(a.ws + "/.git/hooks/pre-commit"); err == nil {
		t.Error("there is a hook")
	}
}

// Nothing that is said of a hidden path depends on what is there.
func TestHiddenStaysUnknown(t *testing.T) {
	testenv.AlsoAsUser(t)
	a := newAgent(t, "--grant-timeout", "200ms")
	same := func(tool string, in func(path string) args) {
		t.Helper()
		var first string
		for _, name := range []string{"id_test", "id_none", "none/below", "inner/below", "link/passwd", "link/../none", "id_test/below", "link"} {
			path := a.home + "/.ssh/" + name
			got := a.use(tool, in(path))
			text := strings.ReplaceAll(got.Text, path, "PATH") + fmt.Sprint(got.Failed)
			if b, err := json.Marshal(got.Data); err == nil {
				text += strings.ReplaceAll(string(b), path, "PATH")
			}
			if first == "" {
				first = text
			}
			if text != first {
				t.Errorf("%s tells %s from others:\n%s\n%s", tool, name, text, first)
			}
		}
	}
	path := func(p string) args { return args{"path": p} }
	same("read_file", path)
	same("list_directory", path)
	same("write_file", func(p string) args { return args{"path": p, "content": "x"} })
	same("edit_file", func(p string) args { return args{"path": p, "old_text": "PRIVATE", "new_text": "x"} })
	same("run_command", func(p string) args { return args{"argv": []string{p}} })
	same("run_command", func(p string) args { return args{"argv": []string{"true"}, "cwd": p} })
	for _, action := range []string{"read", "write", "exec", "connect"} {
		same("check_access", func(p string) args { return args{"action": action, "target": p} })
	}
	same("request_grant", func(p string) args { return args{"path": p, "access": "read", "reason": "curious"} })
	same("request_grant", func(p string) args { return args{"path": p, "access": "write", "reason": "curious"} })
	if b, err := os.ReadFile(a.home + "/.ssh/id_test"); string(b) != "PRIVATE" {
		t.Errorf("%q, %v", b, err)
	}
	// Variables of the server are none of the client's business.
	for _, target := range []string{"$TEST_SECRET/x", "$SHOWN/data", "~/$TEST_SECRET"} {
		for _, action := range []string{"read", "exec", "connect"} {
			if got := a.use("check_access", args{"action": action, "target": target}); strings.Contains(got.Text, "hunter2") || strings.Contains(got.Text, a.beside) {
				t.Errorf("%s %s: %s", action, target, got.Text)
			}
		}
	}
	if got := a.shell("env; cat " + a.home + "/.ssh/id_test"); strings.Contains(got.Text, "hunter2") || strings.Contains(got.Text, "PRIVATE") {
		t.Errorf("%s", got.Text)
	}
}
