package gitguard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes files from lines: "a/b/" is a folder, "a/b" a file, "a -> b" a
// symbolic link, "a: text" a file with a line of text.
func tree(t *testing.T, lines ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, line := range lines {
		name, target, isLink := strings.Cut(line, " -> ")
		name, text, _ := strings.Cut(name, ": ")
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(text+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func placeIn(t *testing.T, root, name string) Place {
	t.Helper()
	path := filepath.Join(root, name)
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return Place{Dir: fd, Path: filepath.Dir(path), Name: filepath.Base(path)}
}

// repository is a whole git directory with a hook and a setting of the user's.
func repository(dir string, more ...string) []string {
	return append([]string{
		dir + "/HEAD: ref: refs/heads/main", dir + "/objects/", dir + "/refs/", dir + "/info/",
		dir + "/config: [user]name=N", dir + "/hooks/a.sample", dir + "/hooks/pre-commit",
	}, more...)
}

// N8
func TestJudge(t *testing.T) {
	lines := repository("own/.git", "own/.git/worktrees/w/", "own/.git/worktrees/evil/HEAD: x", "own/.git/worktrees/evil/config: [core]fsmonitor=x",
		"own/.git/worktrees/user/HEAD: x", "own/.git/worktrees/user/commondir: ../..", "own/.git/worktrees/user/config.worktree: [core]fsmonitor=x",
		"own/.git/worktrees/begun/commondir: ../..", "moved/HEAD: x", "moved/commondir: ../bare")
	lines = append(lines, repository("bare")...)
	lines = append(lines, "plain/config: [core]fsmonitor=x", "plain/HEAD: x", "plain/hooks/x", "fine/config: [user]name=N",
		"fine/HEAD: ref: refs/heads/main", "evil: [core]fsmonitor=x", "good: [user]email=e", "link -> good", "folder/", "hooks/x", "samples/x.sample",
		"fake/worktrees/head/HEAD: x", "fake/worktrees/common/commondir: ../..", "withattr/attributes", "linked/HEAD: x", "linked/refs/", "linked/hooks -> ../hooks", "empty/", "src/hooks/deep/")
	const refuse, allow, install = Refuse, Allow, Install
	tests := []struct {
		op   Op
		at   string
		from string
		want Action
		rule string
	}{
		// R1: settings.
		{Write, "own/.git/config", "", refuse, RuleConfig},
		{Truncate, "bare/config", "", refuse, RuleConfig},
		{Create, "own/.git/config.worktree", "", refuse, RuleConfig},
		{Symlink, "own/.git/config.worktree", "", refuse, RuleConfig},
		{Mkdir, "own/.git/config.worktree", "", refuse, RuleConfig},
		{Rename, "own/.git/config", "good", install, ""},
		{Rename, "own/.git/config", "evil", refuse, RuleConfig},
		{Rename, "own/.git/CONFIG", "evil", refuse, RuleConfig},
		{Rename, "own/.git/con\ufb01g", "evil", refuse, RuleConfig},
		{Rename, "own/.git/config.", "evil", refuse, RuleConfig},
		{Rename, "own/.git/config", "link", refuse, RuleConfig},
		{Rename, "own/.git/config", "folder", refuse, RuleConfig},
		{Link, "own/.git/config.worktree", "good", install, ""},
		{Link, "x", "bare/config", refuse, RuleConfig},
		{Rename, "x", "own/.git/config", refuse, RuleOwn},
		{Remove, "own/.git/config", "", refuse, RuleOwn},
		{Remove, "bare/config", "", allow, ""},
		{Create, "own/.git/config.lock", "", allow, ""},
		{Write, "plain/config", "", allow, ""},
		{Remove, "plain/config", "", allow, ""},
		// R2: hooks.
		{Create, "own/.git/hooks/post-commit", "", refuse, RuleHooks},
		{Create, "own/.git/hooks/b.sample", "", allow, ""},
		{Write, "own/.git/hooks/a.sample", "", allow, ""},
		{Remove, "own/.git/hooks/a.sample", "", allow, ""},
		{Write, "own/.git/hooks/pre-commit", "", refuse, RuleHooks},
		{Remove, "bare/hooks/pre-commit", "", refuse, RuleHooks},
		{Rename, "bare/hooks/update", "bare/hooks/a.sample", refuse, RuleHooks},
		{Link, "x", "bare/hooks/pre-commit", refuse, RuleHooks},
		{Rename, "x", "bare/hooks", refuse, RuleHooks},
		{Symlink, "own/.git/hooks", "", refuse, RuleHooks},
		{Remove, "linked/hooks", "", refuse, RuleHooks},
		{Rename, "own/.git/hooks", "hooks", refuse, RuleHooks},
		{Rename, "own/.git/hooks", "samples", allow, ""},
		{Mkdir, "own/.git/hooks", "", allow, ""},
		{Create, "src/hooks/deep/x", "", allow, ""},
		{Create, "src/hooks/x", "", allow, ""},
		// R3: commondir.
		{Create, "own/.git/commondir", "", refuse, RuleCommonDir},
		{Create, "plain/commondir", "", refuse, RuleCommonDir},
		{Rename, "bare/commondir", "good", refuse, RuleCommonDir},
		{Create, "own/.git/worktrees/w/commondir", "", install, ""},
		{Symlink, "own/.git/worktrees/w/commondir", "", allow, ""},
		{Create, "own/.git/worktrees/evil/commondir", "", refuse, RuleConfig},
		{Rename, "own/.git/worktrees/evil/commondir", "good", refuse, RuleConfig},
		{Link, "own/.git/worktrees/evil/commondir", "good", refuse, RuleConfig},
		{Remove, "own/.git/worktrees/user/commondir", "", refuse, RuleConfig},
		{Rename, "x", "own/.git/worktrees/user/commondir", refuse, RuleConfig},
		{Write, "own/.git/worktrees/begun/commondir", "", refuse, RuleCommonDir},
		{Write, "moved/commondir", "", refuse, RuleCommonDir},
		{Create, "folder/commondir", "", allow, ""},
		{Create, "fake/worktrees/head/commondir", "", refuse, RuleCommonDir},
		{Rename, "fake/worktrees/head/commondir", "good", refuse, RuleCommonDir},
		{Create, "fake/worktrees/common/HEAD", "", refuse, RuleCommonDir},
		// R4: a folder becomes a git directory.
		{Mkdir, "plain/refs", "", refuse, RuleHooks},
		{Symlink, "plain/objects", "", refuse, RuleHooks},
		{Mkdir, "fine/refs", "", allow, ""},
		{Create, "folder/HEAD", "", allow, ""},
		{Rename, "folder/.git", "plain", refuse, RuleHooks},
		{Rename, "folder/.GIT", "plain", refuse, RuleHooks},
		{Rename, "folder/.git", "bare", allow, ""},
		{Rename, "folder/.git", "fine", allow, ""},
		{Mkdir, "folder/.git", "", allow, ""},
		{Rename, "x", "own/.git", refuse, RuleOwn},
		{Remove, "own/.git", "", allow, ""},
		{Rename, "bare/HEAD", "good", allow, ""},
		{Remove, "bare/HEAD", "", allow, ""},
		{Remove, "linked/HEAD", "", refuse, RuleHooks},
		// R5: attributes.
		{Create, "own/.git/info/attributes", "", refuse, RuleAttributes},
		{Rename, "bare/info/attributes", "good", refuse, RuleAttributes},
		{Rename, "bare/info", "withattr", refuse, RuleAttributes},
		{Symlink, "bare/info", "", refuse, RuleHooks},
		{Create, "own/.git/info/exclude", "", allow, ""},
		{Create, "withattr/attributes", "", allow, ""},
	}
	for _, test := range tests {
		root := tree(t, lines...)
		c := Change{Op: test.op, At: placeIn(t, root, test.at), Root: root + "/own"}
		if test.from != "" {
			c.From = placeIn(t, root, test.from)
		}
		v := Judge(c)
		if v.Action != test.want || v.Rule != test.rule {
			t.Errorf("%d %s from %q: %+v, want %v %s", test.op, test.at, test.from, v, test.want, test.rule)
		}
		if v.Action == Refuse && (v.Reason == "" || v.Fix == "") {
			t.Errorf("%s is refused without a reason or a fix", test.at)
		}
	}
}

// N8
func TestExchange(t *testing.T) {
	tests := map[[2]string]Action{
		{"a", "b"}:                        Allow,
		{".git/config", "evil"}:           Refuse,
		{"evil", ".git/config"}:           Refuse,
		{".git/config", "good"}:           Refuse,
		{".git/hooks", "h"}:               Refuse,
		{".git/hooks/a.sample", "good"}:   Allow,
		{".git/hooks/pre-commit", "good"}: Refuse,
		{".git", "h"}:                     Refuse,
		{".git/HEAD", "good"}:             Allow,
	}
	for names, want := range tests {
		root := tree(t, append(repository(".git"), "a", "b", "h/pre-commit", "evil: [core]fsmonitor=x", "good: [user]name=M")...)
		c := Change{Op: Rename, Exchange: true, At: placeIn(t, root, names[0]), From: placeIn(t, root, names[1]), Root: root}
		if v := Judge(c); v.Action != want {
			t.Errorf("exchange of %v: %+v, want %v", names, v, want)
		}
	}
}

// The file that is put in place is a new one with the content that was
// checked: a descriptor of the old one changes nothing. N8
func TestPut(t *testing.T) {
	root := tree(t, append(repository(".git"), ".git/config.lock: [user]name=M", ".git/config.cloche -> ../victim", "victim: untouched")...)
	lock, err := os.OpenFile(root+"/.git/config.lock", os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := os.Chmod(root+"/.git/config.lock", 0o4640); err != nil {
		t.Fatal(err)
	}
	c := Change{Op: Rename, At: placeIn(t, root, ".git/config"), From: placeIn(t, root, ".git/config.lock"), Root: root}
	v := Judge(c)
	if _, err := lock.WriteString("[core]fsmonitor=x\n"); err != nil {
		t.Fatal(err)
	}
	if err := v.Put(); v.Action != Install || err != nil {
		t.Fatalf("%+v, %v", v, err)
	}
	checkFile(t, root+"/.git/config", "[user]name=M\n")
	checkFile(t, root+"/victim", "untouched\n")
	if info, err := os.Lstat(root + "/.git/config"); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v, want 0640", info.Mode(), err)
	}
}

// A folder that becomes a git directory gets its settings anew. N8
func TestPutOnEntering(t *testing.T) {
	for _, at := range []string{"n/HEAD", "n/refs", ".git"} {
		root := tree(t, "n/config: [user]name=N", "n/config.worktree: [core]bare=false")
		kept, err := os.OpenFile(root+"/n/config", os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		other := map[string]string{"n/HEAD": "refs", "n/refs": "objects", ".git": "x"}[at]
		if err := os.Mkdir(root+"/n/"+other, 0o755); err != nil {
			t.Fatal(err)
		}
		c := Change{Op: Create, At: placeIn(t, root, at), Root: root}
		if at == ".git" {
			c.Op, c.From = Rename, placeIn(t, root, "n")
		}
		v := Judge(c)
		if err := v.Put(); v.Action != Allow || len(v.Fresh) != 2 || err != nil {
			t.Fatalf("%s: %+v, %v", at, v, err)
		}
		if _, err := kept.WriteString("[core]fsmonitor=x\n"); err != nil {
			t.Fatal(err)
		}
		checkFile(t, root+"/n/config", "[user]name=N\n")
	}
}

// N8
func TestPutExclusive(t *testing.T) {
	root := tree(t, append(repository(".git"), "good: [user]name=M")...)
	c := Change{Op: Rename, NoReplace: true, At: placeIn(t, root, ".git/config"), From: placeIn(t, root, "good"), Root: root}
	if err := Judge(c).Put(); err == nil || !os.IsExist(unwrapAll(err)) {
		t.Errorf("Put over an existing file: %v, want EEXIST", err)
	}
	checkFile(t, root+"/.git/config", "[user]name=N\n")
	if _, err := os.Lstat(root + "/.git/config.cloche"); err == nil {
		t.Error("the temporary file is left")
	}
}

func unwrapAll(err error) error {
	for {
		inner, is := err.(interface{ Unwrap() error })
		if !is {
			return err
		}
		err = inner.Unwrap()
	}
}

func checkFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
	}
}

// With a descriptor that is none, every system call fails and the change is
// refused: allowed means that there was none.
func TestOrdinaryNamesCostNothing(t *testing.T) {
	for _, name := range []string{"main.go", "config.go", "header", "a.lock", "index.lock", "0123456789abcdef0123456789abcdef01234567", "größe", ""} {
		c := Change{Op: Rename, At: Place{Dir: -1, Path: "/ws/src/pkg", Name: name}, From: Place{Dir: -1, Path: "/ws/.git", Name: name}}
		var v Verdict
		if n := testing.AllocsPerRun(10, func() { v = Judge(c) }); v.Action != Allow || n > 0 && name != "größe" {
			t.Errorf("%q: %+v with %v allocations", name, v, n)
		}
	}
	if v := Judge(Change{Op: Create, At: Place{Dir: -1, Path: "/ws/.git", Name: "config"}}); v.Action != Refuse {
		t.Errorf("config with a bad descriptor: %+v", v)
	}
}

func BenchmarkJudgeOrdinary(b *testing.B) {
	c := Change{Op: Create, At: Place{Dir: -1, Path: "/home/someone/project/node_modules/left-pad/lib", Name: "index.js"}}
	for b.Loop() {
		Judge(c)
	}
}

// BenchmarkJudgeHooksOfAnApp is the worst ordinary case: a folder that is
// called hooks and is none of git's.
func BenchmarkJudgeHooksOfAnApp(b *testing.B) {
	root := b.TempDir()
	if err := os.MkdirAll(root+"/src/hooks", 0o755); err != nil {
		b.Fatal(err)
	}
	fd, err := unix.Open(root+"/src/hooks", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	c := Change{Op: Create, At: Place{Dir: fd, Path: root + "/src/hooks", Name: "useThing.ts"}}
	for b.Loop() {
		Judge(c)
	}
}
