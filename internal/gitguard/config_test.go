package gitguard

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// N8
func TestParseConfig(t *testing.T) {
	tests := map[string]string{ // content: name=value of each, or "" for an error
		"":                                    "none",
		"[core]\n\tbare = false\n":            "core.bare=false",
		"[Core]\n\tBare\n":                    "core.bare",
		"[core] bare=false ; why\n# x\n":      "core.bare=false",
		"[branch \"A.b\"]\nremote = o\n":      "branch.A.b.remote=o",
		"[branch \"a\\\"b\\\\\"]\nremote = o": "branch.a\"b\\.remote=o",
		"[branch.Ab]\nremote = o":             "branch.ab.remote=o",
		"[a]\nb = x  y \n":                    "a.b=x  y",
		"[a]\nb = \" x ; \" # c\n":            "a.b= x ; ",
		"[a]\nb = one\\\n  two\n":             "a.b=one  two",
		"[a]\nb = \\\"q\\\"\\n\\t\\\\\n":      "a.b=\"q\"\n\t\\",
		"[a]\nb = c # x \\\nd = e\n":          "a.b=c a.d=e",
		"\ufeff[a]\nb = c\n":                  "",
		"[a]\r\nb = c\r\n":                    "",
		"[a]\nb = c\x00\n":                    "",
		"[a]\nb = x\ty\n":                     "",
		"[a]\nb = \"x\n":                      "",
		"[a]\nb = \\x\n":                      "",
		"[a]\nb = x\\":                        "",
		"[a]\nb c\n":                          "",
		"[a]\nb ; c\n":                        "",
		"[a\nb = c\n":                         "",
		"[a \"b]\nc = d\n":                    "",
		"[a \"b\"\nc = d\n":                   "",
		"[a b]\nc = d\n":                      "",
		"[]\na = b\n":                         "",
		"[ \"x\"]\na = b\n":                   "",
		"[-a]\na = b\n":                       "",
		"a = b\n":                             "",
		"[a]\n1 = 2\n":                        "",
		"[a]\n= 2\n":                          "",
	}
	for content, want := range tests {
		entries, err := parseConfig([]byte(content))
		got := ""
		if err == nil {
			got = joined(entries)
		}
		if got != want {
			t.Errorf("parseConfig(%q) = %q, %v, want %q", content, got, err, want)
		}
	}
}

func joined(entries []entry) string {
	if len(entries) == 0 {
		return "none"
	}
	var all []string
	for _, e := range entries {
		if e.bare {
			all = append(all, e.name)
		} else {
			all = append(all, e.name+"="+e.value)
		}
	}
	return strings.Join(all, " ")
}

// FuzzParseConfig holds the parser to git's own: what it accepts, git reads as
// the same settings. N8
func FuzzParseConfig(f *testing.F) {
	testenv.Need(f, "git")
	for _, seed := range []string{
		"[core]\n\tbare = false\n", "[a \"b\\\"]\\\\\"] c=d", "[a.b \"c\"]\nd", "[a]b=\"x\"y\\\n z ;w\n#[c]\n", "[a]\nb = \"\" c \"\" \n", "[a]\nb=\\t\\n\\\\",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		entries, err := parseConfig(content)
		if err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "config", "-l", "-z", "-f", file)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git does not accept %q: %s", content, stderr.Bytes())
		}
		var want bytes.Buffer
		for _, e := range entries {
			want.WriteString(e.name)
			if !e.bare {
				want.WriteString("\n" + e.value)
			}
			want.WriteByte(0)
		}
		if !bytes.Equal(out, want.Bytes()) {
			t.Errorf("%q: git reads %q, we read %q", content, out, want.Bytes())
		}
	})
}

// N8
func TestHarmless(t *testing.T) {
	tests := map[string]bool{ // lines of one section each: is it harmless?
		"[user]name=N": true, "[user]name=\"a\\nb\"": false, "[core]bare": true, "[core]filemode=maybe": false,
		"[core]fsmonitor=x": false, "[core]fsmonitor=true": false, "[core]hookspath=x": false, "[core]sshcommand=x": false,
		"[core]pager=x": false, "[core]editor=x": false, "[core]askpass=x": false, "[core]gitproxy=x": false, "[core]attributesfile=x": false,
		"[core]excludesfile=x": false, "[core]worktree=..": false, "[core]alternaterefscommand=x": false, "[core]sharedrepository=1": false,
		"[include]path=x": false, "[includeif \"gitdir:/\"]path=x": false, "[alias]x=!y": false, "[filter \"x\"]clean=y": false,
		"[diff]external=x": false, "[diff \"x\"]textconv=y": false, "[diff \"x\"]command=y": false, "[merge \"x\"]driver=y": false,
		"[gpg]program=x": false, "[gpg \"ssh\"]program=x": false, "[credential]helper=x": false, "[uploadpack]packobjectshook=x": false,
		"[remote \"o\"]uploadpack=x": false, "[remote \"o\"]receivepack=x": false, "[remote \"o\"]vcs=x": false, "[remote \"o\"]proxy=x": false,
		"[gc]recentobjectshook=x": false, "[hook \"x\"]command=y": false, "[sequence]editor=x": false, "[pager]log=x": false, "[lfs \"x\"]path=y": false,
		"[submodule \"s\"]update=!x": false, "[submodule \"s\"]update=rebase": true, "[submodule \"s\"]url=../x": true,
		"[url \"ext::x\"]insteadof=https://": false, "[protocol \"ext\"]allow=always": false, "[http]proxy=x": false, "[interactive]difffilter=x": false,
		"[trailer \"x\"]command=y": false, "[browser \"x\"]cmd=y": false, "[difftool \"x\"]cmd=y": false, "[fsmonitor]socketdir=x": false,
		"[remote \"o\"]url=https://example.org/x": true, "[remote \"o\"]url=git@example.org:x": true, "[remote \"o\"]url=/x y": true, "[remote \"o\"]url=ssh://git@[::1]:22/x": true,
		"[remote \"o\"]url=ext::x": false, "[remote \"o\"]url=fd::3": false, "[remote \"o\"]url=-x": false, "[remote \"o\"]url=ssh://-ox/y": false,
		"[remote \"o\"]url=ssh://a@-ox/y": false, "[remote \"o\"]url=foo://x": false, "[remote \"o\"]url=HTTPS://x/": true, "[remote \"o\"]tagopt=--upload-pack": false,
		"[branch \"m\"]remote=ext::x": false, "[branch \"m\"]merge=-x": false, "[branch \"m\"]mergeoptions=x": false, "[branch \"m\"]description=\"a\\nb\\n\"": true,
		"[branch \"m\"]description = a\\\n[core]\\\nfsmonitor=x": false, "[advice]detachedhead=false": true, "[core]abbrev=12": true,
		"[extensions]refstorage=reftable": true, "[extensions]refstorage=x://y": false, "[extensions]partialclone=ext::x": false,
		"[add]ignore-errors=true": true, "[add]ignore-errors=x": false, "[format]useautobase=whenAble": true, "[format]useautobase=x": false,
		"[notes \"rewrite\"]rebase=false": true, "[notes \"rewrite\"]other=true": false, "[notes]rewriteref=refs/notes/*": true, "[notes]rewriteref=-x": false,
		"[submodule]recurse=true": true, "[push]recursesubmodules=check": true, "[stash]showpatch": true, "[log]date=iso": true, "[log]date=-x": false,
		"[log]showsignature=true": false, "[pull]twohead=x": false, "[clean]requireforce=false": false, "[pack]threads=2": true, "[pack]packsizelimit=x": false,
	}
	for content, want := range tests {
		_, err := checkAdded(nil, []byte(content), "/ws/.git")
		if got := err == nil; got != want {
			t.Errorf("%q: harmless %v, want %v (%v)", content, got, want, err)
		}
	}
}

// What was there may stay or go; what is new or changed is looked at. N8
func TestCheckAdded(t *testing.T) {
	const old = "[core]\n\tfsmonitor = mine\n\tbare = false\n[alias]\n\tx = !y\n"
	tests := map[string]bool{
		old:                                true,
		"":                                 true,
		old + "[user]\n\tname = N\n":       true,
		"[alias]\n\tx = !y\n":              true,
		"[alias]\n\tx = !z\n":              false,
		old + "[alias]\n\tx = !y\n":        false,
		old + "[core]\n\tfsmonitor = no\n": false,
		old + "[core":                      false,
	}
	entries, err := parseConfig([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range tests {
		got, err := checkAdded(entries, []byte(content), "/ws/.git")
		if (err == nil) != want || want && string(got) != content {
			t.Errorf("%q gives %q, %v, want %v", content, got, err, want)
		}
	}
}

// git writes core.worktree for submodules and does not need it; moved or behind
// a link it would lead out of the workspace. N8
func TestWorktreeIsDropped(t *testing.T) {
	const content = "[core]\n\tbare = false\n\tworktree = ../../../sub\n[user]\n\tname = N\n"
	got, err := checkAdded(nil, []byte(content), "/ws/.git/modules/sub")
	if want := "[core]\n\tbare = false\n\t[user]\n\tname = N\n"; err != nil || string(got) != want {
		t.Errorf("checkAdded = %q, %v, want %q", got, err, want)
	}
	entries, err := parseConfig(got)
	if err != nil || joined(entries) != "core.bare=false user.name=N" {
		t.Errorf("what is left reads as %v, %v", entries, err)
	}
	if _, err := checkAdded(nil, []byte(content), "/ws/.git"); err == nil {
		t.Error("core.worktree is accepted outside of submodules")
	}
}
