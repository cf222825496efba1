package mcpserver

import (
	"context"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/policy"
)

// N11: the edit that would allow something becomes a request for it.
func TestAskFor(t *testing.T) {
	allow := policy.Edit{Field: "network.allow", Value: "example.com:1"}
	for _, c := range []struct {
		edits []policy.Edit
		want  *grantArgs
	}{
		{[]policy.Edit{{Field: "paths.read", Value: "/a/b"}}, &grantArgs{Path: "/a/b", Access: grant.Read}},
		{[]policy.Edit{{Field: "paths.write", Value: "/a b's $HOME", Optional: true}}, &grantArgs{Path: "/a b's $HOME", Access: grant.Write}},
		{[]policy.Edit{allow}, &grantArgs{Host: "example.com:1", Access: grant.Connect}},
		{[]policy.Edit{{Field: "network.mode", Value: "user"}, allow}, &grantArgs{Host: "example.com:1", Access: grant.Connect}},
		{[]policy.Edit{{Field: "network.forward", Value: "80"}}, nil},
		{[]policy.Edit{{Field: "paths.read", Value: "/a\xff"}}, nil}, // JSON cannot hold it
		{nil, nil},
	} {
		got := askFor(c.edits)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%v: %v, want %v", c.edits, got, c.want)
		}
	}
}

// The end of the output is kept, in whole characters, whatever the writes.
func TestTail(t *testing.T) {
	for _, size := range []int{1, 3, 7, 64, 1000} {
		kept := &tail{limit: 10}
		text := strings.Repeat("x", 95) + "äöü123"
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if _, err := kept.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if got, total, cut := kept.text(); got != "xäöü123" || total != int64(len(text)) || !cut {
			t.Errorf("writes of %d: %q of %d, cut %v", size, got, total, cut)
		}
	}
	kept := &tail{limit: 8}
	if _, err := kept.Write([]byte("1äöü3456")); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := kept.text(); got != "öü3456" && got != "ü3456" {
		t.Errorf("%q begins in a character", got)
	}
	whole := &tail{limit: 8}
	if _, err := whole.Write([]byte("12345678")); err != nil {
		t.Fatal(err)
	}
	if got, _, cut := whole.text(); got != "12345678" || cut {
		t.Errorf("%q, cut %v", got, cut)
	}
}

// Lines come in pieces that fit together.
func TestReadLines(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		b.WriteString(strings.Repeat("line ", i%40) + "\n")
	}
	b.WriteString("the last has no end")
	text := b.String()
	var got strings.Builder
	for at, rounds := 1, 0; at != 0; rounds++ {
		out, err := readLines(context.Background(), strings.NewReader(text), at, maxReadLines)
		if err != nil || rounds > 1000 || len(out.Text) > maxReadBytes || out.Lines > maxReadLines {
			t.Fatalf("at %d: %d bytes, %d lines, %v", at, len(out.Text), out.Lines, err)
		}
		got.WriteString(out.Text)
		at = out.NextLine
	}
	if got.String() != text {
		t.Errorf("%d bytes came of %d", got.Len(), len(text))
	}
	if _, err := readLines(context.Background(), strings.NewReader("a\x00"), 1, 1); err == nil {
		t.Error("binary was read")
	}
}

// What says more in a policy than it seems to is not asked about.
func TestIsForm(t *testing.T) {
	for text, want := range map[string]bool{"example.com:443": false, "/a/b": false, "git": false, "$HOME": true, "~/x": true,
		"~": true, "urn:cloche:document": true, "cwd": true, "cwd/x": true, "cwdx": false, "/a/$B": true} {
		if isForm(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

// A file that takes long to be written keeps calls about others going.
func TestPathLock(t *testing.T) {
	var l pathLock
	unlock, err := l.lock(t.Context(), "/a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.lock(t.Context(), "/b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.lock(gone, "/a"); err == nil {
		t.Error("two calls have the same file")
	}
	next := make(chan func(), 1)
	go func() {
		unlock, err := l.lock(t.Context(), "/a")
		if err != nil {
			t.Error(err)
		}
		next <- unlock
	}()
	unlock()
	(<-next)()
	if len(l.held) != 0 {
		t.Errorf("%d are still held", len(l.held))
	}
}
