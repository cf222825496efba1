package safeopen

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// opener is Open or its portable twin.
type opener func(path string, flag int, perm os.FileMode, allowed func(string, bool) error) (*os.File, error)

// eachOpener runs a test with every way of opening that this system has.
func eachOpener(t *testing.T, test func(t *testing.T, open opener)) {
	t.Run("system", func(t *testing.T) { test(t, Open) })
	t.Run("portable", func(t *testing.T) {
		test(t, func(path string, flag int, perm os.FileMode, allowed func(string, bool) error) (*os.File, error) {
			r := request{flag: flag, perm: perm.Perm(), allowed: allowed}
			if err := r.checkFlags(); err != nil {
				return nil, err
			}
			abs, err := absolute(path)
			if err != nil {
				return nil, err
			}
			return openPortable(abs, r)
		})
	})
}

var errDenied = errors.New("denied by the rule")

// onlyBelow allows everything at or below root.
func onlyBelow(root string) func(string, bool) error {
	return func(p string, _ bool) error {
		if p == root || strings.HasPrefix(p, root+"/") {
			return nil
		}
		return errDenied
	}
}

// W6
func TestOpenReadsWhatIsAllowed(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		for path, want := range map[string]string{
			"file": "root/file", "tosub/file": "root/sub/file", "tofile": "root/sub/file",
			"todeep/../file": "root/sub/file", "backin/file": "root/sub/file", "../root/file": "root/file",
			"toroot" + root + "/file": "root/file",
		} {
			f, err := open(root+"/"+path, os.O_RDONLY, 0, onlyBelow(root))
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			got, err := io.ReadAll(f)
			f.Close()
			if err != nil || string(got) != "content of "+want {
				t.Errorf("%s: %q, %v", path, got, err)
			}
			if want := filepath.Join(filepath.Dir(root), want); f.Name() != want {
				t.Errorf("%s: named %q, want %q", path, f.Name(), want)
			}
		}
	})
}

// W6: refused reads, writes and creations leave no trace.
func TestOpenRefusesOutside(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		outside := filepath.Join(filepath.Dir(root), "outside")
		for _, path := range []string{"out/secret", "outfile", "absout/secret", "dangleout", "out/new", "../outside/secret", "todeep/../../../outside/secret", "out", "out/", "..", "sibling/file"} {
			for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_EXCL, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND} {
				f, err := open(root+"/"+path, flag, 0o644, onlyBelow(root))
				if f != nil {
					f.Close()
				}
				linkItself := flag&os.O_EXCL != 0 && errors.Is(err, fs.ErrExist)
				if !errors.Is(err, errDenied) && !linkItself {
					t.Errorf("%s with %#x: %v, want the refusal", path, flag, err)
				}
			}
		}
		if got, _ := os.ReadFile(filepath.Join(outside, "secret")); string(got) != "content of outside/secret" {
			t.Errorf("the file outside was changed: %q", got)
		}
		if _, err := os.Lstat(filepath.Join(outside, "new")); err == nil {
			t.Error("a file was made outside")
		}
	})
}

// W6
func TestOpenCreatesAndTruncates(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		write := func(path string, flag int, text string) error {
			f, err := open(filepath.Join(root, path), flag, 0o600, onlyBelow(root))
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString(text)
			return err
		}
		expect := func(path, want string) {
			t.Helper()
			if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
				t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
			}
		}
		must(t, write("made", os.O_WRONLY|os.O_CREATE, "one"))
		must(t, write("made", os.O_WRONLY|os.O_CREATE|os.O_APPEND, " two"))
		expect("made", "one two")
		must(t, write("made", os.O_RDWR|os.O_CREATE|os.O_TRUNC, "3"))
		expect("made", "3")
		must(t, write("dangling", os.O_WRONLY|os.O_CREATE, "through the link"))
		expect("sub/new", "through the link")
		must(t, write("tofile", os.O_WRONLY|os.O_TRUNC, "short"))
		expect("sub/file", "short")
		if info, err := os.Stat(filepath.Join(root, "made")); err != nil || info.Mode().Perm()&^0o600 != 0 {
			t.Errorf("mode of a new file: %v, %v", info.Mode(), err)
		}
	})
}

// W6
func TestOpenErrors(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		for _, c := range []struct {
			path string
			flag int
			want error
		}{
			{"none", os.O_RDONLY, fs.ErrNotExist},
			{"none/x", os.O_RDWR | os.O_CREATE, fs.ErrNotExist},
			{"dangling", os.O_RDONLY, fs.ErrNotExist},
			{"file/x", os.O_RDONLY, syscall.ENOTDIR},
			{"file/", os.O_RDONLY, syscall.ENOTDIR},
			{"file", os.O_WRONLY | os.O_CREATE | os.O_EXCL, fs.ErrExist},
			{"dangling", os.O_WRONLY | os.O_CREATE | os.O_EXCL, fs.ErrExist},
			{"loop", os.O_RDONLY, syscall.ELOOP},
			{"loopa", os.O_RDWR | os.O_CREATE, syscall.ELOOP},
			{"loopa/x", os.O_RDONLY, syscall.ELOOP},
			{"sub", os.O_RDWR, syscall.EISDIR},
			{"sub", os.O_RDONLY | os.O_CREATE, syscall.EISDIR},
			{"slash", os.O_WRONLY, syscall.EISDIR},
			{"file", os.O_WRONLY | os.O_RDWR, syscall.EINVAL},
			{"file", 1 << 29, syscall.EINVAL},
		} {
			f, err := open(root+"/"+c.path, c.flag, 0o644, onlyBelow(root))
			if !errors.Is(err, c.want) {
				t.Errorf("%s with %#x: %v, want %v", c.path, c.flag, err, c.want)
			}
			if f != nil {
				f.Close()
			}
		}
	})
}

// W6: the rule is asked about the resolved place, and writes are distinguished.
func TestOpenAsksAboutTheRealPlace(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		type question struct {
			path  string
			write bool
		}
		for _, c := range []struct {
			path string
			flag int
			want []question
		}{
			{"tosub/file", os.O_RDONLY, []question{{"sub/file", false}}},
			{"tofile", os.O_WRONLY, []question{{"tofile", false}, {"sub/file", true}}},
			{"dangling", os.O_RDWR | os.O_CREATE, []question{{"dangling", false}, {"sub/new", true}}},
			{"file", os.O_RDONLY | os.O_TRUNC, []question{{"file", true}}},
			{"file", os.O_RDONLY | os.O_CREATE, []question{{"file", true}}},
			{"dangling", os.O_WRONLY | os.O_CREATE | os.O_EXCL, []question{{"dangling", true}}},
			{"sub/..", os.O_RDONLY, []question{{"", false}}},
		} {
			var got []question
			f, err := open(root+"/"+c.path, c.flag, 0o644, func(p string, write bool) error {
				got = append(got, question{p, write})
				return nil
			})
			if err == nil {
				f.Close()
			}
			for i := range c.want {
				c.want[i].path = filepath.Join(root, c.want[i].path)
			}
			if len(got) != len(c.want) {
				t.Errorf("%s: asked %v, want %v", c.path, got, c.want)
				continue
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("%s: asked %v, want %v", c.path, got, c.want)
				}
			}
		}
	})
}

// W6: a refused caller cannot tell a missing file from a present one.
func TestOpenHidesExistence(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		deny := func(string, bool) error { return errDenied }
		for _, path := range []string{"file", "none", "sub", "tofile", "dangling"} {
			for _, flag := range []int{os.O_RDONLY, os.O_WRONLY | os.O_CREATE | os.O_EXCL} {
				if _, err := open(filepath.Join(root, path), flag, 0o644, deny); !errors.Is(err, errDenied) {
					t.Errorf("%s with %#x: %v", path, flag, err)
				}
			}
		}
	})
}

// W6: folders can be listed.
func TestOpenFolder(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		for _, path := range []string{"sub", "tosub", "sub/", "slash", "sub/.", "todeep/..", "sub/deep/.."} {
			f, err := open(root+"/"+path, os.O_RDONLY, 0, onlyBelow(root))
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			names, err := f.Readdirnames(-1)
			f.Close()
			if err != nil || len(names) != 3 {
				t.Errorf("%s: %q, %v", path, names, err)
			}
		}
	})
}

// W6: relative paths begin at the working folder.
func TestOpenRelative(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		root := tree(t)
		t.Chdir(filepath.Join(root, "sub"))
		f, err := open("file", os.O_RDONLY, 0, onlyBelow(root))
		must(t, err)
		f.Close()
		if _, err := open("../../outside/secret", os.O_RDONLY, 0, onlyBelow(root)); !errors.Is(err, errDenied) {
			t.Errorf("got %v", err)
		}
		if _, err := open("", os.O_RDONLY, 0, onlyBelow(root)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("empty path: %v", err)
		}
	})
}

// W6: somebody swaps a folder for a link all the time; no open and no creation
// lands behind the link, be it outside of the root or a hidden neighbour.
func TestOpenSwapRace(t *testing.T) {
	eachOpener(t, func(t *testing.T, open opener) {
		for _, target := range []string{"../outside", "hidden"} {
			t.Run(filepath.Base(target), func(t *testing.T) { swapRace(t, open, target) })
		}
	})
}

func swapRace(t *testing.T, open opener, target string) {
	root := tree(t)
	forbidden := filepath.Join(root, target)
	must(t, os.MkdirAll(forbidden, 0o755))
	must(t, os.WriteFile(filepath.Join(forbidden, "file"), []byte("forbidden"), 0o644))
	allowed := func(p string, write bool) error {
		if strings.HasPrefix(p, forbidden) {
			return errDenied
		}
		return onlyBelow(root)(p, write)
	}
	stop := swapForever(t, root, target)
	opened := 0
	// The other one may have stood still while the link was there: then it goes on.
	for i := 0; i < 5000 || opened == 0 && i < 5_000_000; i++ {
		flag, name := os.O_RDONLY, "file"
		if i%2 == 1 {
			flag, name = os.O_RDWR|os.O_CREATE, "created"
		}
		f, err := open(filepath.Join(root, "swap", name), flag, 0o644, allowed)
		if err != nil {
			continue
		}
		opened++
		got, _ := io.ReadAll(f)
		f.Close()
		if string(got) == "forbidden" {
			t.Fatalf("open %d read the forbidden file", i)
		}
	}
	stop()
	if _, err := os.Lstat(filepath.Join(forbidden, "created")); err == nil {
		t.Fatal("a file was made behind the link")
	}
	if opened == 0 {
		t.Error("nothing was opened: the race was not tried")
	}
}

// swapForever exchanges root/swap, a folder, with a link to the target until
// the returned function is called.
func swapForever(t *testing.T, root, target string) (stop func()) {
	t.Helper()
	swap, away, link := filepath.Join(root, "swap"), filepath.Join(root, "away"), filepath.Join(root, "link")
	must(t, os.Mkdir(swap, 0o755))
	must(t, os.WriteFile(filepath.Join(swap, "file"), []byte("inside"), 0o644))
	must(t, os.Symlink(target, link))
	var done atomic.Bool
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for !done.Load() {
			os.Rename(swap, away)
			os.Rename(link, swap)
			os.Rename(swap, link)
			os.Rename(away, swap)
		}
	}()
	stop = func() { done.Store(true); <-finished }
	t.Cleanup(stop)
	return stop
}

// W6: on systems that ignore case, rules are asked about the listed name.
func TestListedName(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "Secret"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	seen, err := root.Lstat("Secret")
	must(t, err)
	for asked, want := range map[string]string{"Secret": "Secret", "sECRET": "Secret"} {
		if got, err := listedName(root, asked, seen); err != nil || got != want {
			t.Errorf("listedName(%q) = %q, %v", asked, got, err)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "Secret")))
	if got, err := listedName(root, "sECRET", seen); !errors.Is(err, errChanged) {
		t.Errorf("a vanished file is called %q, %v", got, err)
	}
}
