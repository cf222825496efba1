//go:build unix

package secret

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloche-dev/cloche/policy"
)

const value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"

func reader(environ ...string) *Reader {
	return &Reader{
		Getenv: func(name string) (string, bool) {
			for _, kv := range environ {
				if v, ok := strings.CutPrefix(kv, name+"="); ok {
					return v, true
				}
			}
			return "", false
		},
		Expand:  func(p string) (string, error) { return p, nil },
		Environ: append([]string{"PATH=" + os.Getenv("PATH")}, environ...),
	}
}

func source(t *testing.T, text string) policy.Source {
	t.Helper()
	s, err := policy.ParseSource(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// N14: each kind of source gives the value without the newline at its end.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(value+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "pass")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ \"$*\" = 'show -- web/gh' ] && printf '%s\\nuser: ana\\n' \"$V\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, text := range []string{"env:V", "file:" + file, `command:printf "%s\n" ` + value, "command:sh -c 'echo \"$V\"'", "pass:web/gh"} {
		got, err := reader("V="+value).Read(t.Context(), "T", []policy.Source{source(t, "env:NONE"), source(t, text)})
		if err != nil || string(got) != value {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// N14: without a value there is an error that names the secret and the source, and has no part of
// what the source gave.
func TestNoValue(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"env:NONE":                     "the secret T has no value: the variable NONE is not set",
		"env:EMPTY":                    "the variable EMPTY is empty",
		"env:LINES":                    "the variable LINES gives several lines, or control characters",
		"file:" + dir + "/none":        "the file " + dir + "/none cannot be opened: no such file or directory",
		"file:" + write("empty", "\n"): "is empty",
		"file:" + write("lines", value+"\n"+value+"\n"):           "gives several lines",
		"file:" + write("large", strings.Repeat("x", maxValue+1)): "gives more than 16384 bytes",
		"file:" + write("huge", strings.Repeat(value, 100_000)):   "gives more than 16384 bytes",
		"file:" + dir:                  "is not a regular file",
		"file:" + fifo:                 "is not a regular file",
		"command:nosuchprogram-here x": "the command nosuchprogram-here cannot be started: executable file not found in $PATH",
		"command:sh -c 'echo " + value + "; echo " + value + " >&2; exit 3'": "the command sh ends with status 3; run it to see why",
		"command:true":               "the command true is empty",
		"command:sh -c 'kill -9 $$'": "the command sh fails: signal: killed",
		"command:sh -c 'yes " + value + " | head -c 1000000'": "gives more than 16384 bytes",
	} {
		got, err := reader("EMPTY=", "LINES="+value+"\n"+value).Read(t.Context(), "T", []policy.Source{source(t, text)})
		if err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%s: %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error has the value: %v", text, err)
		}
	}
}

// N14: a source that does not answer is given up, with all that it started.
func TestSlowSource(t *testing.T) {
	r := reader()
	r.Time = 50 * time.Millisecond
	began := time.Now()
	_, err := r.Read(t.Context(), "T", []policy.Source{source(t, "command:sh -c 'sleep 600 & sleep 600'")})
	if err == nil || !strings.Contains(err.Error(), "the command sh did not answer in time") || time.Since(began) > 5*time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reader("V="+value).Read(ctx, "T", []policy.Source{source(t, "command:echo x"), source(t, "env:V")}); err == nil {
		t.Error("a value is read although nobody waits for it")
	}
}

// N14: the placeholders of a policy's secrets, and why some have none.
func TestPlaceholders(t *testing.T) {
	p := policy.Policy{}.With(policy.WithSecret("A@a.example=env:V", "B@b.example=env:NONE", "C@c.example=env:NONE"))
	p.Secrets[1].Optional = true
	got, err := reader("V="+value).Placeholders(t.Context(), p.Secrets)
	if err == nil || err.Error() != "the secret C has no value: the variable NONE is not set" {
		t.Errorf("the error is %v", err)
	}
	if len(got) != 1 || !strings.HasPrefix(got["A"], "ghp_") || got["A"] == value {
		t.Errorf("the placeholders are %v", got)
	}
}

// A program that a command could have changed is not started.
func TestProgramIsChecked(t *testing.T) {
	r := reader()
	r.Check = func(p string) error { return fmt.Errorf("%s can be changed", filepath.Base(p)) }
	marker := filepath.Join(t.TempDir(), "ran")
	_, err := r.Read(t.Context(), "T", []policy.Source{source(t, "command:touch "+marker)})
	if err == nil || !strings.Contains(err.Error(), "is not started: touch can be changed") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Error("it was started")
	}
}

// A program runs in the root folder, not in one that a command can write.
func TestProgramFolder(t *testing.T) {
	got, err := reader().Read(t.Context(), "T", []policy.Source{source(t, "command:pwd")})
	if err != nil || string(got) != "/" {
		t.Errorf("it runs in %s, %v", got, err)
	}
}

// N14: a placeholder has the shape of the value and nothing else of it.
func TestPlaceholder(t *testing.T) {
	for text, shape := range map[string]string{
		value: `^ghp_[A-Za-z0-9]{36}$`,
		"github_pat_11ABCDEFG0abcdefghijkl_" + strings.Repeat("aB3", 19): `^github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{57}$`,
		"npm_" + strings.Repeat("aB3d", 9):                               `^npm_[A-Za-z0-9]{36}$`,
		"sk-ant-api03-" + strings.Repeat("aB-3_", 19) + "AA":             `^sk-ant-api03-([A-Za-z0-9]{2}-[A-Za-z0-9]_){19}[A-Za-z0-9]{2}$`,
		"sk-" + strings.Repeat("aB3d", 12):                               `^sk-[A-Za-z0-9]{48}$`,
		"AKIAIOSFODNN7EXAMPLE":                                           `^AKIA[A-Z0-9]{25}$`, // 16 of 36 kinds are too few
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY":                       `^[A-Za-z0-9]{13}/[A-Za-z0-9]{7}/[A-Za-z0-9]{18}$`,
		"pypi-AgEIcHlwaS5vcmc" + strings.Repeat("aB3", 40):               `^pypi-[A-Za-z0-9]{135}$`,
		"xoxb-123456789012-abcdefGHIJKL":                                 `^xoxb-[A-Za-z0-9]{12}-[A-Za-z0-9]{12}$`,
		"0123456789abcdef0123456789abcdef01234567":                       `^[0-9a-f]{40}$`,
		"6f1ed002-ab5c-4c6f-8f0a-0123456789ab":                           `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`,
		"hunter2":                                                        `^[a-z0-9]{25}$`,
		"12345":                                                          `^[0-9]{39}$`,
		"pässwörd":                                                       `^[A-Za-z0-9]{22}$`,
		"ghp_":                                                           `^[a-z]{3}_[a-z]{25}$`,
		"-":                                                              `^-[0-9]{39}$`,
	} {
		seen := map[string]bool{}
		for range 50 {
			got := Placeholder([]byte(text))
			if !regexp.MustCompile(shape).MatchString(got) || seen[got] || got == text {
				t.Fatalf("%s became %s, want %s and each time another", text, got, shape)
			}
			seen[got] = true
		}
	}
}

// Each character of a placeholder is as likely as the others, wherever it stands.
func TestPlaceholderIsRandom(t *testing.T) {
	const rounds = 20_000
	text := []byte("ghp_" + strings.Repeat("a1B", 12))
	var count [40][256]int
	for range rounds {
		for i, c := range []byte(Placeholder(text)) {
			count[i][c]++
		}
	}
	want := float64(rounds) / 62
	for i := 4; i < 40; i++ {
		for _, c := range []byte(lower + upper + digits) {
			if d := math.Abs(float64(count[i][c]) - want); d > 8*math.Sqrt(want) {
				t.Errorf("position %d has %c %d times, want about %.0f", i, c, count[i][c], want)
			}
		}
	}
}

// The bytes of a buffer do not stay behind.
func TestBufferIsCleared(t *testing.T) {
	b := newBuffer()
	given := []byte(value)
	if _, err := b.Write(given); err != nil {
		t.Fatal(err)
	}
	taken := b.take()
	if string(taken) != value || strings.Trim(string(given), "\x00") != "" || strings.Trim(string(b.bytes[:cap(b.bytes)]), "\x00") != "" {
		t.Errorf("taken %q; left are %q and %q", taken, given, b.bytes)
	}
}
