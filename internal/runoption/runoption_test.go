package runoption

import (
	"os/exec"
	"testing"

	"github.com/cloche-dev/cloche/internal/show"
	"github.com/cloche-dev/cloche/policy"
)

// N1: an option is printed so that a shell gives cloche the very same value.
func TestWordIsReadByShell(t *testing.T) {
	for _, word := range []string{"/a", "", "/a b", "/it's", `/a"`, "/a\x01\"", "/a\x01'", "/a\x01b", `/a\`, "/a\xff", "/é", "/a\u200bb", "[::1]:80", "/$HOME", "/a\nb", "*", "http://h/v1/items(1)", "/~x", "!x"} {
		out, err := exec.Command("bash", "-c", "printf %s "+Word(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q: the shell reads %q, %v", Word(word), out, err)
		}
		if show.Visible(Word(word)) != Word(word) {
			t.Errorf("%q acts on a terminal", Word(word))
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		want  string
		edits []policy.Edit
	}{
		{"", nil},
		{"--ro /a", []policy.Edit{{Field: "paths.read", Value: "/a"}}},
		{"--rw '?/a b'", []policy.Edit{{Field: "paths.write", Value: "/a b", Optional: true}}},
		{"--rw '/$$HOME'", []policy.Edit{{Field: "paths.write", Value: "/$HOME"}}},
		{"--socket '/run/my socket'", []policy.Edit{{Field: "sockets", Value: "/run/my socket"}}},
		{"--net user --allow a.example:1", []policy.Edit{{Field: "network.mode", Value: "user"}, {Field: "network.allow", Value: "a.example:1"}}},
		{"--allow 'http://h/v1/items(1)'", []policy.Edit{{Field: "network.allow", Value: "http://h/v1/items(1)"}}},
		{"--preset go", []policy.Edit{{Field: "presets", Value: "go"}}},
	} {
		if got := Text(c.edits...); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// Each field has its option.
func TestEveryFieldHasAnOption(t *testing.T) {
	for _, f := range []string{"paths.read", "paths.write", "persist", "sockets", "network.mode", "network.allow", "network.forward", "presets"} {
		if flag(f) == "" {
			t.Errorf("%s has no option", f)
		}
	}
}
