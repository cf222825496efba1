package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N2: where the command's input is a pipe, the question is asked on the terminal that
// cloche was started from, which is then as it was; the input is the command's.
func TestAskOnTerminalBehindAPipe(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "tmux")
	s := newSchool(t)
	s.sh(t, `mkdir -p ~/.cache/x`)
	x := newTmux(t, s, fmt.Sprintf(`echo piped | cloche run --ask --backend native --ro %s -- sh -c 'cat; echo new >~/.cache/x/f && cat ~/.cache/x/f; echo more >~/.cache/x/f || echo kept'; echo "status $?"; stty -a | grep -o -- '[- ]icanon'`, s.root))
	x.shows(s, "wants to write "+s.home+"/.cache/x")
	x.allow(s)
	x.shows(s, "piped")
	x.shows(s, "granted write")
	x.shows(s, "new")
	x.shows(s, "status 0")
	x.shows(s, " icanon")
}

// N2 F10: the user's own policy names the program that decides; a project's does not,
// although it is trusted, and a flag comes first.
func TestAskHookOfThePolicy(t *testing.T) {
	testenv.Need(t, "userns", "landlock")
	s := newSchool(t)
	s.sh(t, `mkdir -p ~/.cache/x ~/.config/cloche ~/bin; for n in mine theirs flag; do printf '#!/bin/sh\ncat >/dev/null; touch ~/asked-'$n'\necho "{\"allow\": true, \"scope\": \"once\"}"\n' >~/bin/$n; done; chmod +x ~/bin/*
printf 'version: 1\nask: {hook: ~/bin/theirs}\n' >.cloche.yaml`)
	run := func(more ...string) string {
		t.Helper()
		args := append([]string{"run", "--ask", "--ask-timeout", "20s", "--ro", s.root}, more...)
		out, err := s.command(t, "cloche", append(args, "--", "sh", "-c", "echo new >~/.cache/x/f; rm ~/.cache/x/f")...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", more, err, out)
		}
		return s.exec(t, "sh", "-c", "cd; ls -d asked-*; rm -f asked-*") + string(out)
	}
	s.sh(t, `printf 'version: 1\nask: {hook: ~/bin/mine}\n' >~/.config/cloche/policy.yaml`)
	if got := run(); !strings.Contains(got, "asked-mine") || strings.Contains(got, "asked-theirs") {
		t.Errorf("asked were: %s", got)
	}
	s.cloche(t, "policy", "trust")
	if got := run(); !strings.Contains(got, "asked-mine") || strings.Contains(got, "asked-theirs") || !strings.Contains(got, "ask is ignored") {
		t.Errorf("with a trusted project, asked were: %s", got)
	}
	if got := run("--ask-hook", s.home+"/bin/flag"); !strings.Contains(got, "asked-flag") || strings.Contains(got, "asked-mine") {
		t.Errorf("with a flag, asked were: %s", got)
	}
}

// N1: at a terminal the first refusal of each kind is printed while the command goes on,
// once, and not into a program that fills the screen; an agent gets it, too.
func TestToldWhileRunning(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "tmux", "getent")
	s := newSchool(t)
	s.sh(t, `mkfifo go-on`)
	const script = `getent hosts a.example; getent hosts b.example; echo x >/usr/new; read line <go-on; exit 0`
	x := newTmux(t, s, `cloche run -- sh -c 'printf "half a line"; `+script+`'; echo "status $?"`)
	x.shows(s, "cloche: denied resolve a.example by getent")
	told := 1
	if os.Getuid() == 0 { // an ordinary user could not write there outside either, so no rule is to blame
		x.shows(s, "cloche: denied create /usr/new by sh")
		told = 2
	}
	s.sh(t, `echo >go-on`)
	x.shows(s, "status 0")
	if screen := x.screen(s); strings.Contains(screen, "b.example by") || strings.Count(screen, "denied") != told || !strings.Contains(screen, "half a line") || strings.Contains(screen, "half a linecloche") {
		t.Errorf("the screen is\n%s", screen)
	}
	x = newTmux(t, s, `cloche run -- sh -c 'printf "\033[?1049hfull screen"; getent hosts a.example; read line <go-on; printf "\033[?1049l"; exit 1'; echo "status $?"`)
	x.shows(s, "full screen")
	time.Sleep(4 * time.Second) // nothing is printed; there is nothing to wait for
	if screen := x.screen(s); strings.Contains(screen, "denied") {
		t.Errorf("it was printed into a program that fills the screen:\n%s", screen)
	}
	s.sh(t, `echo >go-on`)
	x.shows(s, "status 1")
	x.shows(s, "cloche: denied resolve a.example")

	cmd := s.command(t, "cloche", "run", "--for-agent", "--", "sh", "-c", script)
	said, err := cmd.StderrPipe()
	if err != nil || cmd.Start() != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(text.String(), "denied resolve a.example") {
		n, err := said.Read(buf)
		if err != nil {
			t.Fatalf("an agent gets nothing: %v %s", err, &text)
		}
		text.Write(buf[:n])
	}
	s.sh(t, `echo >go-on`)
	_, _ = io.Copy(io.Discard, said)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// N2: --ask asks about connections, too, unless a person has chosen another network.
func TestAskImpliesNetwork(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "curl")
	s := newSchool(t)
	run := func(more ...string) string {
		t.Helper()
		args := append([]string{"run", "--ask", "--ask-timeout", "1s", "--json"}, more...)
		out, err := s.command(t, "cloche", append(args, "--", "curl", "-sf", "-m", "20", "http://asked.example/")...).CombinedOutput()
		if err == nil {
			t.Errorf("%v: it was reached", more)
		}
		return string(out)
	}
	if got := run(); !strings.Contains(got, "nobody decided") && !strings.Contains(got, "asked.example:80") {
		t.Errorf("nobody was asked: %s", got)
	}
	if got := run("--net", "none"); strings.Contains(got, "asked.example:80") || !strings.Contains(got, `"network.mode"`) {
		t.Errorf("with --net none: %s", got)
	}
}
