package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N10: the prompt of a shell says that it is in a sandbox, after the user's own
// start-up files, unless that is not wanted; no file is written for it.
func TestShellPrompt(t *testing.T) {
	for _, c := range []struct {
		shell, file, text string
		args              []string
		want              string
	}{
		{"bash", ".bashrc", "PS1='mine> '; alias hello='echo well met'", nil, "(cloche) mine> "},
		{"bash", ".bashrc", "PROMPT_COMMAND='PS1=\"late> \"'; alias hello='echo well met'", nil, "(cloche) late> "},
		{"bash", ".bashrc", "PROMPT_COMMAND=(: 'PS1=\"list> \"'); alias hello='echo well met'", nil, "(cloche) list> "},
		{"bash", ".bashrc", "PS1='mine> '; alias hello='echo well met'", []string{"--prompt", "[in] "}, "[in] mine> "},
		{"bash", ".bashrc", "PS1='mine> '; alias hello='echo well met'", []string{"--prompt", ""}, "\nmine> "},
		{"fish", ".config/fish/config.fish", "function fish_prompt; echo -n 'mine> '; end; function hello; echo well met; end", nil, "(cloche) mine> "},
		{"zsh", ".zshrc", "PS1='mine> '; hello() { echo well met }", nil, "(cloche) mine> "},
		{"zsh", ".zshrc", "precmd() { PS1='late> ' }; hello() { echo well met }", nil, "(cloche) late> "},
		{"zsh", ".zshrc", "precmd_functions=(:); setopt nounset ksharrays noclobber; PS1='set> '; hello() { echo well met }", nil, "(cloche) set> "},
		{"zsh", ".config/z/.zshrc", "PS1='moved> '; hello() { echo well met }", nil, "(cloche) moved> "},
		{"zsh", ".zshrc", "PS1='mine> '; hello() { echo well met }", []string{"--prompt", ""}, "mine> "},
		{"dash", "", "", nil, "(cloche) "},
	} {
		t.Run(c.shell+" "+c.want, func(t *testing.T) {
			testenv.Need(t, "userns", "landlock", c.shell)
			s := newSchool(t)
			if c.file != "" {
				file := filepath.Join(s.home, c.file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(c.text+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			folder := "none" // that zsh reads its files from, if its own file says so
			if dir := filepath.Dir(c.file); c.shell == "zsh" && dir != "." {
				folder = filepath.Join(s.home, dir)
				if err := os.WriteFile(filepath.Join(s.home, ".zshenv"), []byte("ZDOTDIR="+folder+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := s.command(t, "cloche", append([]string{"shell", "--ro", s.root}, c.args...)...)
			cmd.Env = append(cmd.Env, "SHELL="+strings.TrimSpace(s.exec(t, "sh", "-c", "command -v "+c.shell)), "TERM=xterm")
			master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 120})
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			x := newScreen(master)
			testenv.Eventually(t, "a prompt", func() bool { return strings.Contains(x.text(), c.want) })
			if c.file != "" {
				x.types(t, "hello\r")
				testenv.Eventually(t, "the user's own settings", func() bool { return strings.Contains(x.text(), "well met") })
			}
			if c.shell == "bash" {
				x.types(t, "test -e /proc/self/fd/3; echo open $?\r")
				testenv.Eventually(t, "no open descriptor", func() bool { return strings.Contains(x.text(), "open 1") })
			}
			if c.shell == "zsh" {
				x.types(t, "echo folder ${ZDOTDIR-none} ${CLOCHE_ZDOTDIR-none}\r")
				testenv.Eventually(t, "the user's own folder", func() bool { return strings.Contains(x.text(), "\nfolder "+folder+" none") })
				x.types(t, "echo x >> /run/cloche/zsh/.zshrc || echo kept\r")
				testenv.Eventually(t, "a file that cannot be changed", func() bool { return strings.Contains(x.text(), "\nkept") })
			}
			if slices.Contains(c.args, "") && strings.Contains(x.text(), "(cloche)") {
				t.Errorf("there is a mark: %s", x.text())
			}
			x.types(t, "exit\r")
			_ = cmd.Wait()
		})
	}
}

// A screen is what a program at a terminal printed.
type screen struct {
	master *os.File
	mu     sync.Mutex
	out    bytes.Buffer
}

func newScreen(master *os.File) *screen {
	x := &screen{master: master}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			x.mu.Lock()
			x.out.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

// text is all of it, without what moves and colours.
func (x *screen) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return "\n" + sequencePattern.ReplaceAllString(strings.ReplaceAll(x.out.String(), "\r", ""), "")
}

func (x *screen) types(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(x.master, text); err != nil {
		t.Fatal(err)
	}
}
