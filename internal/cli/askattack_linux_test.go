package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// queries are what makes a terminal type, by the manual of xterm and those of kitty,
// iTerm2 and rxvt.
func queries() []string {
	list := []string{
		"\x05",                                                                  // ENQ: answerback
		"\x1b[c", "\x1b[>c", "\x1b[=c", "\x1bZ", "\x1b[>q", "\x1b[x", "\x1b[1x", // what are you
		"\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?15n", "\x1b[?25n", "\x1b[?26n", "\x1b[?53n", "\x1b[?55n", "\x1b[?56n", "\x1b[?62n",
		"\x1b[?63;1n", "\x1b[?75n", "\x1b[?85n", "\x1b[?996n", "\x1b[7n", "\x1b[8n", // status
		"\x1b[?u", "\x1b[?4m", "\x1b[#R", "\x1b[1;1;1;1;5;5*y", "\x1b[?1;3;256S", "\x1b[\"v", "\x1b[&w", "\x1b[1$w", "\x1b[2$w",
		"\x1bP$qm\x1b\\", "\x1bP$qr\x1b\\", "\x1bP$q\"p\x1b\\", "\x1bP$q q\x1b\\", "\x1bP$qtyyyyyyy\x1b\\", "\x1bP+q544e\x1b\\", "\x1bP+Q544e\x1b\\",
		"\x1b]0;yes\x07\x1b[21t", "\x1b]0;\ryes\r\x07\x1b[20t", "\x1b]l\x1b\\",
		"\x1b]50;?\x07", "\x1b]52;c;cnllcw==\x07\x1b]52;c;?\x07", "\x1b]60\x07", "\x1b]61\x07", "\x1b]1337;ReportCellSize\x07", "\x1b]1337;ReportVariable=eQ==\x07",
		"\x1b]99;i=y:p=?;\x1b\\", "\x1b_Gi=1,a=q;AAAA\x1b\\",
	}
	for _, op := range []int{11, 13, 14, 15, 16, 18, 19, 20, 21} {
		list = append(list, fmt.Sprintf("\x1b[%dt", op))
	}
	for _, n := range []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19} {
		list = append(list, fmt.Sprintf("\x1b]%d;?\x07", n))
	}
	for n := range 16 {
		list = append(list, fmt.Sprintf("\x1b]4;%d;?\x07\x1b]5;%d;?\x07", n, n))
	}
	for n := range 100 {
		list = append(list, fmt.Sprintf("\x1b[?%d$p\x1b[%d$p", n, n))
	}
	for _, n := range []int{1000, 1002, 1003, 1004, 1006, 1049, 2004, 2026, 2027, 2031, 2048, 9001} {
		list = append(list, fmt.Sprintf("\x1b[?%d$p", n))
	}
	return list
}

// settings are what a command sets before a question, to hide it, or to make a
// terminal type by itself.
const settings = "\x1b[8;30;40m\x1b[5;7r\x1b[?6h\x1b(0\x0e\x1b[4h\x1b[20h\x1b[2h\x1b[?7l\x1b[?25l\x1b[?5h\x1b[?69h\x1b[3;4s" +
	"\x1b[?1003h\x1b[?1006h\x1b[?1004h\x1b[?2004h\x1b[?2026h\x1b[?2031h\x1b[?2048h\x1b[?9001h\x1b=\x1b[?1h\x1b[?66h\x1b[>4;2m\x1b[>31u\x1b[?1049h\x1b[1$}" +
	"\x1b[2J\x1b[20;1Hcloche: make wants to write /tmp/harmless\r\ncloche: allow? press y: \x1b[1;1H\x1b[5i\x1b]0;"

// A hostileTerminal answers every query with what is most dangerous, and types
// more by itself. It keeps the state that programs set.
type hostileTerminal struct {
	master *os.File
	mu     sync.Mutex
	all    strings.Builder // all output
	modes  map[string]bool
	hidden bool
	typed  chan string // what it will type; what does not fit is lost
}

func newHostileTerminal(master *os.File) *hostileTerminal {
	h := &hostileTerminal{master: master, modes: map[string]bool{}, typed: make(chan string, 64)}
	go h.run()
	go func() {
		for text := range h.typed {
			if _, err := io.WriteString(master, text); err != nil {
				return
			}
		}
	}()
	return h
}

// types types a text, unless too much waits.
func (h *hostileTerminal) types(text string) {
	select {
	case h.typed <- text:
	default:
	}
}

// reply is what the terminal types for a query: what real ones do, with words that
// allow things in it.
func reply(query string) string {
	switch {
	case query == "\x05":
		return "yes\ry\rs\rt\ra\r1234\r"
	case strings.HasSuffix(query, "q"):
		return "\x1bP>|tmux 3.5a yes always\x1b\\"
	case strings.HasSuffix(query, "$p"):
		return "\x1b[?1;1$y"
	case strings.HasSuffix(query, "R"), strings.HasSuffix(query, "n"):
		return "\x1b[1;1Rrxvt-unicode yes\n"
	case strings.HasSuffix(query, "t"):
		return "\x1b]lyes\x1b\\\x1b[4;600;800t"
	case strings.HasPrefix(query, "\x1bP"):
		return "\x1bP1$r0;yes\ra\rm\x1b\\"
	case strings.HasPrefix(query, "\x1b]"):
		return "\x1b]4;1;rgb:yyyy/aaaa/ssss\x07"
	}
	return "\x1b[?64;1;2;6;9;15;16;17;18;21;22;28c"
}

var sequencePattern = regexp.MustCompile("\x05|\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[]PX^_][^\x07\x1b]*(\x07|\x1b\\\\)|\x1b[ -/]*[0-~]|\x0e|\x0f")

// run reads output, keeps the state and answers.
func (h *hostileTerminal) run() {
	buf := make([]byte, 1<<16)
	rest := ""
	for {
		n, err := h.master.Read(buf)
		if err != nil {
			return
		}
		rest += string(buf[:n])
		h.mu.Lock()
		h.all.Write(buf[:n])
		at := 0
		for _, m := range sequencePattern.FindAllStringIndex(rest, -1) {
			seq := rest[m[0]:m[1]]
			h.set(seq)
			if strings.HasSuffix(seq, "h") || strings.HasSuffix(seq, "l") || strings.HasSuffix(seq, "m") && seq != "\x1b[?4m" {
				// no query
			} else {
				h.types(reply(seq))
			}
			at = m[1]
		}
		h.mu.Unlock()
		if rest = rest[at:]; !strings.Contains(rest, "\x1b") || len(rest) > 1<<16 {
			rest = ""
		}
	}
}

// set keeps modes as a terminal does.
func (h *hostileTerminal) set(seq string) {
	body, isCSI := strings.CutPrefix(seq, "\x1b[")
	switch {
	case seq == "\x0e" || seq == "\x0f":
		h.modes["shift out"] = seq == "\x0e"
	case seq == "\x1b(0" || seq == "\x1b(B":
		h.modes["graphics"] = seq == "\x1b(0"
	case seq == "\x1b=" || seq == "\x1b>":
		h.modes["keypad"] = seq == "\x1b="
	case !isCSI:
	case strings.HasSuffix(body, "h") || strings.HasSuffix(body, "l"):
		prefix := ""
		list := body[:len(body)-1]
		if strings.HasPrefix(list, "?") {
			prefix, list = "?", list[1:]
		}
		for _, m := range strings.Split(list, ";") {
			h.modes[prefix+m] = strings.HasSuffix(body, "h")
		}
	case strings.HasSuffix(body, "r"):
		h.modes["region"] = body != "r"
	case body == "5i" || body == "4i":
		h.modes["printer"] = body == "5i"
	case body == "1$}" || body == "0$}":
		h.modes["status line"] = body == "1$}"
	case strings.HasPrefix(body, ">4") && strings.HasSuffix(body, "m"):
		h.modes["keys"] = body != ">4m"
	case strings.HasPrefix(body, ">") && strings.HasSuffix(body, "u"):
		h.modes["kitty"] = body != ">0u"
	case strings.HasSuffix(body, "m") && !strings.HasPrefix(body, ">"):
		h.hidden = strings.HasPrefix(body, "8")
	}
}

func (h *hostileTerminal) output() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all.String()
}

// wrong are the modes that are not as a shell finds them.
func (h *hostileTerminal) wrong() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for m, on := range h.modes {
		if usual := m == "?7" || m == "?25" || m == "12"; on != usual {
			list = append(list, m)
		}
	}
	if h.hidden {
		list = append(list, "hidden text")
	}
	return list
}

// noise types random replies and keys, but no code.
func (h *hostileTerminal) noise(stop <-chan struct{}) {
	words := []string{"y", "yes\r", "s", "t\r", "a\r", "always\r", "\r", "\n", "\x1b[<0;3;4M", "\x1b[I", "\x1b[O", "\x1b[200~yes\r\x1b[201~", "\x1b[121u\x1b[13u",
		"\x1b]52;c;eWVzCg==\x07", "\x1bP", "\x1b\\", "\x1b[?1;2", "$y", "run", "0000\r", "\x1b[97;1;1:1u"}
	r := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
			text := words[r.IntN(len(words))]
			if r.IntN(3) == 0 {
				b := make([]byte, r.IntN(12))
				for i := range b {
					b[i] = byte(r.IntN(256))
				}
				text = strings.ReplaceAll(string(b), "\x03", "") // Ctrl-C is a person's no
			}
			h.types(text)
		}
	}
}

// attackScript prints all queries and settings, wants a file, and goes on printing
// while it waits.
func attackScript(t *testing.T, s school) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.ws, "queries"), []byte(strings.Join(queries(), "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.ws, "settings"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	s.sh(t, `mkdir -p ~/.cache/x; cat >attack <<'END'
stty raw -echo 2>/dev/null
(while :; do cat queries settings queries; done) & noise=$!
cat queries settings
for n in 1 2 3; do echo granted >~/.cache/x/f$n; done
kill $noise
printf '\033\\\033[4i\033c'
echo attacked
END`)
}

// N2 W8: a command that makes its terminal type by every query of the manuals, before
// a question, while it is asked and after it, is granted nothing, and the question
// comes on a terminal that shows it.
func TestAskHostileTerminal(t *testing.T) {
	testenv.AlsoAsUser(t)
	for name, how := range map[string]string{"terminal": "%s", "pipe": "true | %s"} {
		t.Run(name, func(t *testing.T) {
			testenv.Need(t, "userns", "landlock")
			s := newSchool(t)
			attackScript(t, s)
			cmd := s.command(t, "sh", "-c", fmt.Sprintf(how, fmt.Sprintf("cloche run --ask --backend native --ro %s -- sh attack", s.root)))
			master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			h := newHostileTerminal(master)
			// Where the terminal's replies take too long, on a slow machine, or are taken for
			// too many answers, the question is not asked here any more.
			elsewhere := func() bool {
				return strings.Contains(h.output(), "cloche approve (request") || strings.Contains(h.output(), "it is not asked about here any more")
			}
			testenv.Eventually(t, "a question", func() bool {
				return codeOn(h.output()) != "" || strings.Contains(h.output(), "attacked") || elsewhere()
			})
			if wrong := h.wrong(); len(wrong) > 0 && !elsewhere() {
				t.Errorf("the question comes on a terminal in the modes %q", wrong)
			}
			stop := make(chan struct{})
			go h.noise(stop)
			time.Sleep(3 * time.Second) // the attack goes on; nothing is waited for
			close(stop)
			h.types("\x1b\\\r")
			testenv.Eventually(t, "the end", func() bool {
				if i := strings.LastIndex(h.output(), ", ?: "); i >= 0 {
					h.types("\rnone\r")
				}
				_ = s.command(t, "sh", "-c", `for r in $(cloche approve list | cut -d' ' -f1); do cloche approve no $r --rest; done`).Run()
				return strings.Contains(h.output(), "attacked")
			})
			_ = cmd.Wait()
			if out := s.exec(t, "sh", "-c", "ls ~/.cache/x"); out != "" {
				t.Errorf("the command was granted what it asked for: %s", out)
			}
			if log := s.cloche(t, "log", "--json"); strings.Contains(log, `"verdict":"allow"`) {
				t.Errorf("the log has a grant:\n%s", log)
			}
		})
	}
}

// N2 W8: the same in a real terminal, where tmux answers and draws, and a person can
// still read the question and answer it.
func TestAskHostileTmux(t *testing.T) {
	testenv.Need(t, "userns", "landlock", "tmux")
	s := newSchool(t)
	attackScript(t, s)
	x := newTmux(t, s, fmt.Sprintf(`cloche run --ask --backend native --ro %s -- sh attack`, s.root))
	x.shows(s, "wants to write "+s.home+"/.cache/x")
	x.shows(s, ", ?:")
	if out, _ := x.command(s, "capture-pane", "-p", "-e").CombinedOutput(); strings.Contains(string(out), "\x1b[8m") || strings.Contains(string(out), "\x1b[30") {
		t.Errorf("the question is hidden: %q", out)
	}
	screen := strings.TrimRight(x.screen(s), "\n ")
	if last := screen[strings.LastIndex(screen, "\n")+1:]; !strings.HasSuffix(last, ", ?:") {
		t.Errorf("the last line is %q in\n%s", last, screen)
	}
	if out := s.exec(t, "sh", "-c", "ls ~/.cache/x"); out != "" {
		t.Errorf("it was granted before anybody answered: %s", out)
	}
	x.allow(s)
	testenv.Eventually(t, "what was allowed", func() bool {
		return strings.Contains(s.exec(t, "sh", "-c", "cat ~/.cache/x/f* 2>/dev/null; true"), "granted")
	})
}
