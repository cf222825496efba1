package cli

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/grant"
	"github.com/cloche-dev/cloche/internal/desksocket"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// waitingDesk is a desk at which something waits, as a running command has it.
func waitingDesk(t *testing.T, keeps ...func(grant.Grant) []grant.Kept) (id string, answer <-chan error) {
	t.Helper()
	o := grant.Options{Timeout: time.Minute, Store: grant.OpenStore(t.TempDir())}
	for _, f := range keeps {
		o.Keeps = f
	}
	d := grant.NewDesk(o)
	s, err := desksocket.Serve(d, desksocket.Info{Pid: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); d.Close() })
	got := make(chan error, 1)
	go func() {
		_, err := d.Ask(context.Background(), grant.Request{Path: "/usr/share", Access: grant.Write, Reason: "\x1b[31mplease", Program: "make"})
		got <- err
	}()
	testenv.Eventually(t, "the request comes to the desk", func() bool { return len(d.Pending()) > 0 })
	return d.Pending()[0].ID, got
}

func approve(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{in: os.Stdin, out: &stdout, err: &stderr, words: newWords(&stderr)}
	status = a.main(append([]string{"approve"}, args...))
	return status, stdout.String() + stderr.String()
}

// A5, A6: a person decides from another process, sees what exactly is asked
// for, and can give less and not more.
func TestApprove(t *testing.T) {
	id, answer := waitingDesk(t)
	if status, out := approve(t, "list"); status != 0 || !strings.Contains(out, id+"  write /usr/share  by make") {
		t.Errorf("list: %d\n%s", status, out)
	}
	status, out := approve(t, "show", id)
	if status != 0 || !strings.Contains(out, "they say") || strings.Contains(out, "\x1b") {
		t.Errorf("show: %d\n%q", status, out)
	}
	if status, out := approve(t, "yes", id, "--path", "/usr"); status == 0 || !strings.Contains(out, "give that or less") {
		t.Errorf("more than was asked for: %d\n%s", status, out)
	}
	if status, out := approve(t, "yes", id, "--for", "soon"); status == 0 || !strings.Contains(out, "write one such as") {
		t.Errorf("a bad time: %d\n%s", status, out)
	}
	if status, out := approve(t, "yes", id, "--access", "read", "--for", "1h"); status != 0 || !strings.Contains(out, "granted  read /usr/share (timed)") {
		t.Errorf("yes: %d\n%s", status, out)
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

func TestApproveNo(t *testing.T) {
	id, answer := waitingDesk(t)
	if status, out := approve(t, "no", id, "--note", "use testdata"); status != 0 || !strings.Contains(out, "refused  write /usr/share") {
		t.Errorf("no: %d\n%s", status, out)
	}
	if err := <-answer; err == nil || !strings.Contains(err.Error(), "use testdata") {
		t.Errorf("the asker hears %v", err)
	}
}

func only(t *testing.T, id string) []waiting {
	t.Helper()
	w, err := findWaiting(id)
	if err != nil {
		t.Fatal(err)
	}
	return []waiting{*w}
}

// The conversation on a terminal: a word that is not known explains, and an
// answer decides.
func TestApproveConversation(t *testing.T) {
	id, answer := waitingDesk(t)
	var stdout, stderr bytes.Buffer
	a := &app{in: os.Stdin, out: &stdout, err: &stderr, words: newWords(&stderr)}
	y := &typist{keys: "what\rsession\r# hour\r"}
	// Not about all that wait: other tests may have desks of their own.
	if err := a.askAll(t.Context(), y, only(t, id)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"wants to   write /usr/share", "yes, for an hour", "granted  write /usr/share (timed)"} {
		if !strings.Contains(y.String()+stdout.String(), want) {
			t.Errorf("no %q in:\n%s%s", want, y, &stdout)
		}
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// No key gives a secret for good, here as at the command's own terminal.
func TestApproveSecret(t *testing.T) {
	id, answer := waitingDesk(t)
	var stdout bytes.Buffer
	a := &app{in: os.Stdin, out: &stdout, err: &stdout, words: newWords(&stdout)}
	list := only(t, id)
	list[0].Request.Secret = true
	y := &typist{keys: "# always\r# hour\rlater\r"}
	if err := a.askAll(t.Context(), y, list); err != nil {
		t.Fatal(err)
	}
	if out := y.String(); !strings.Contains(out, "warning") || strings.Contains(out, "yes, always") || !strings.Contains(out, "cloche approve yes "+id) {
		t.Errorf("%s", out)
	}
	if err := a.askAll(t.Context(), &typist{keys: "no\r"}, list); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err == nil {
		t.Error("it was given")
	}
}

// The end of input decides nothing.
func TestApproveEndOfInput(t *testing.T) {
	id, _ := waitingDesk(t)
	var stdout bytes.Buffer
	a := &app{in: os.Stdin, out: &stdout, err: &stdout, words: newWords(&stdout)}
	if err := a.askAll(t.Context(), &typist{}, only(t, id)); err != nil {
		t.Fatal(err)
	}
	if _, err := findWaiting(id); err != nil {
		t.Error(err)
	}
}

// A7: whoever decides sees what the grant does not open, before and after. What another
// user's process says of itself is printed as text.
func TestApproveSaysWhatStaysClosed(t *testing.T) {
	kept := []grant.Kept{
		{Path: "/usr/share/gh/hosts.yml", Access: policy.Hidden, Rule: "preset secrets:16"},
		{Path: "/usr/share/doc\x1b[2J", Access: policy.Hidden, Rule: "--hide"},
	}
	id, answer := waitingDesk(t, func(grant.Grant) []grant.Kept { return kept })
	const want = "/usr/share/gh/hosts.yml (hidden, preset secrets:16)"
	if status, out := approve(t, "show", id); status != 0 || !strings.Contains(out, "but not    "+want) || strings.Contains(out, "\x1b") {
		t.Errorf("show: %d\n%q", status, out)
	}
	var screen bytes.Buffer
	if writeQuestion(&screen, only(t, id)[0].Request); !strings.Contains(screen.String(), "but not  "+want) || strings.Contains(screen.String(), "\x1b") {
		t.Errorf("the question: %q", screen.String())
	}
	// For a narrower path, only what lies in it is named.
	if status, out := approve(t, "yes", id, "--path", "/usr/share/gh"); status != 0 || !strings.Contains(out, "granted  write /usr/share/gh (once), but not "+want+"\n") {
		t.Errorf("yes: %d\n%s", status, out)
	}
	<-answer
}

// A request's id comes from another process, for root that of another user.
func TestApproveListIsText(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, err: &out, words: newWords(&out)}
	r := grant.Request{ID: "\x1b]0;x\x07", Path: "/x", Access: grant.Read, Secret: true}
	if err := printList(a, []waiting{{Request: r}}, nobodyWaits, waitingLine); err != nil || strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), `\x1b]0;x\a`) {
		t.Errorf("%q (%v)", out.String(), err)
	}
	y := &typist{keys: "what\rlater\r"}
	if err := a.askAll(t.Context(), y, []waiting{{Request: r}}); err != nil || strings.Contains(y.String(), "\x1b]0") || strings.Count(y.String(), `\x1b]0;x\a`) < 2 {
		t.Errorf("%q (%v)", y.String(), err)
	}
}
