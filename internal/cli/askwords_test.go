package cli

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/grant"
)

// A typist is a terminal on which somebody answers questions: with a key at a time,
// and the code for each #.
type typist struct {
	bytes.Buffer
	keys string
}

func (y *typist) Key(ctx context.Context) (byte, error) {
	screen := y.String()
	if !strings.Contains(screen, ": ") { // no question yet
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if y.keys == "" {
		return 0, io.EOF
	}
	if y.keys[0] == '#' {
		y.keys = codeOn(screen) + y.keys[1:]
	}
	key := y.keys[0]
	y.keys = y.keys[1:]
	return key, nil
}

// codeOn is the code of the last question on a screen, or empty.
func codeOn(screen string) string {
	all := regexp.MustCompile(`allow[^?]*\? type (\d{4})`).FindAllStringSubmatch(screen, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// decideHost types keys at the question about a host, and returns what came of it.
func decideHost(t *testing.T, r grant.Request, keys string) (screen string, g *grant.Grant, err error) {
	t.Helper()
	questions := make(chan *question, 1)
	d := grant.NewDesk(grant.Options{Store: grant.OpenStore(t.TempDir()), Approvers: []grant.Approver{asks(func(d *grant.Desk, r grant.Request) {
		questions <- &question{desk: d, request: r, ctx: t.Context()}
	})}})
	done := make(chan struct{})
	go func() {
		g, err = d.Ask(t.Context(), r)
		close(done)
	}()
	y := &typist{keys: keys}
	new(prompter).ask(y, <-questions)
	d.Close()
	<-done
	return y.String(), g, err
}

type asks func(*grant.Desk, grant.Request)

func (a asks) Asked(d *grant.Desk, r grant.Request) { a(d, r) }
func (asks) Withdrawn(grant.Request)                {}

// N2: a connection is asked about on the terminal, given, given in part, refused;
// one to what is not public comes with a warning, and no key gives it for good.
func TestAskAboutHost(t *testing.T) {
	r := grant.Request{Host: "tcp://a.example:80", Access: grant.Connect, Program: "curl", Rule: "network.allow (built-in)", Command: []string{"make"}}
	screen, g, err := decideHost(t, r, "?\r#always\r# always\r")
	for _, text := range []string{"curl wants to connect tcp://a.example:80", "command  make", "rule     network.allow", "plain HTTP and a path", "granted connect tcp://a.example:80 (always)"} {
		if !strings.Contains(screen, text) {
			t.Errorf("the screen does not show %q:\n%s", text, screen)
		}
	}
	if err != nil || g.Scope != grant.Always {
		t.Errorf("%+v, %v", g, err)
	}
	screen, g, err = decideHost(t, r, "less\ra.example\r#\rless\rhttp://a.example/v1\r#\r")
	if err != nil || g.Host != "http://a.example/v1" || !strings.Contains(screen, "give that or less") || !strings.Contains(screen, "allow http://a.example/v1?") {
		t.Errorf("given in part: %+v, %v\n%s", g, err, screen)
	}
	if screen, _, err = decideHost(t, r, "yes\rn\r"); err == nil || !strings.Contains(screen, "refused connect") {
		t.Errorf("%v\n%s", err, screen)
	}
	for key, scope := range map[string]grant.Scope{"#\r": grant.Once, "# hour\r": grant.Timed, "\x1b[>0;1c# always\r": grant.Always} {
		if screen, g, err = decideHost(t, r, key); err != nil || g.Scope != scope {
			t.Errorf("%s: %+v, %v\n%s", key, g, err, screen)
		}
	}
	r.Host, r.Secret = "tcp://169.254.169.254:80", true
	screen, g, err = decideHost(t, r, "# always\r# hour\r#\r")
	if err != nil || g.Scope != grant.Once || !strings.Contains(screen, "WARNING  it is not on the public internet") {
		t.Errorf("%+v, %v\n%s", g, err, screen)
	}
}

// N2: what a person reads is what would be opened, whatever the names are.
func TestQuestionsWithHostileNames(t *testing.T) {
	name := func(n string) grant.Request {
		return grant.Request{Path: "/d/" + n, File: "/d/" + n + "/f", Access: grant.Write, Program: "p\x1b[2J", Rule: "paths.read /", Command: []string{"sh", "-c", strings.Repeat("true\n", 1000)}}
	}
	for n, want := range map[string]string{
		"plain":            "write /d/plain\r",
		"end ":             "write '/d/end '\r",
		"x  now for  /tmp": "write '/d/x  now for  /tmp'\r",
		"a\nb":             `write $'/d/a\nb'`,
		"a\u202eb":         `write $'/d/a\u202eb'`,
		"a\u00a0\u3164b":   `write $'/d/a\u00a0\u3164b'`,
		"a\xffb":           `write $'/d/a\xffb'`,
		"it's":             `write '/d/it'\''s'`,
	} {
		for what, write := range map[string]func(io.Writer, grant.Request){"question": writeQuestion, "request": writeRequest} {
			var screen bytes.Buffer
			write(&screen, name(n))
			if what == "request" {
				want = strings.TrimSuffix(want, "\r")
			}
			if text := screen.String(); !strings.Contains(text, want) || len(text) > 1500 || strings.ContainsAny(text, "\x1b\u202e\u00a0") {
				t.Errorf("%s %q: no %q in\n%q", what, n, want, text)
			}
		}
	}
}
