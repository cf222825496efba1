package resolve

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/hostfs"
	"github.com/cloche-dev/cloche/policy"
)

// naiveFollow is follow in its simplest form, which remembers nothing.
func naiveFollow(tree hostfs.FS, p string) (realPath, error) {
	root := hostfs.Info{Kind: hostfs.Dir}
	r := realPath{path: "/", info: root}
	rest := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			r.path, r.info = path.Dir(r.path), root
			continue
		}
		next := path.Join(r.path, name)
		info, err := tree.Lstat(next)
		if err != nil {
			r.path, r.info = path.Join(append([]string{next}, rest...)...), hostfs.Info{}
			r.denied = errors.Is(err, fs.ErrPermission)
			return r, nil
		}
		if info.Kind != hostfs.Symlink {
			r.path, r.info = next, info
			continue
		}
		if len(r.links) == maxLinks {
			return r, fmt.Errorf("%s: %w", p, errLoop)
		}
		r.links = append(r.links, link{next, info.Target})
		if path.IsAbs(info.Target) {
			r.path, r.info = "/", root
		}
		rest = append(strings.Split(info.Target, "/"), rest...)
	}
	return r, nil
}

// A countingFS counts look-ups. It lists folders if lists is set, and then finds
// names whatever their case in folders called "any".
type countingFS struct {
	hostfs.Tree
	lists           bool
	stats, listings int
}

func (c *countingFS) Lstat(p string) (hostfs.Info, error) {
	c.stats++
	info, err := c.Tree.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return info, fs.ErrNotExist // as the live one
	}
	return info, err
}

// Names implements hostfs.Lister.
func (c *countingFS) Names(dir string) ([]string, bool) {
	if !c.lists {
		return nil, false
	}
	c.listings++
	names, err := c.ReadDir(dir)
	return names, err == nil
}

// randomTree is a small tree full of links.
func randomTree(r *rand.Rand) hostfs.Tree {
	t := hostfs.Tree{}
	for range 12 {
		p := randomPath(r, "/")
		switch r.Intn(6) {
		case 0:
			t[p] = "file"
		case 1:
			t[p] = "denied"
		case 2, 3:
			t[p] = "-> " + strings.TrimPrefix(randomPath(r, ""), "/")
		case 4:
			t[p] = "-> " + randomPath(r, "/")
		default:
			t[p] = "dir"
		}
	}
	return t
}

func randomPath(r *rand.Rand, start string) string {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "..", ".", ""}
	parts := make([]string, 1+r.Intn(4))
	for i := range parts {
		n := 7
		if start == "" {
			n = len(names) // targets of links may hold anything
		}
		parts[i] = names[r.Intn(n)]
	}
	return start + strings.Join(parts, "/")
}

// F4: remembering and listing change no answer, in whatever order paths are asked
// for.
func TestFollowIsNaive(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 3000 {
		tree := randomTree(r)
		for _, lists := range []bool{false, true} {
			real := newTree(&countingFS{Tree: tree, lists: lists}, "/")
			for range 30 {
				p := "/" + randomPath(r, "")
				want, wantErr := naiveFollow(tree, p)
				got, err := real.follow(p)
				if fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%v: follow(%q) fails with %v, want %v", tree, p, err, wantErr)
				}
				if err == nil && !reflect.DeepEqual(got, want) {
					t.Fatalf("%v: follow(%q)\ngot  %+v\nwant %+v", tree, p, got, want)
				}
			}
		}
	}
}

// manyRules are hidden optional paths, as the presets have them.
func manyRules(format string) policy.Policy {
	p := workspacePolicy()
	for i := range 1000 {
		r := rule(policy.Hidden, fmt.Sprintf(format, i))
		r.Optional = true
		p.Paths = append(p.Paths, r)
	}
	return p
}

// N9: a rule costs no look of its own where the folder is missing, where a folder
// of the home could be listed, and where it is a pattern.
func TestRulesAreCheap(t *testing.T) {
	cost := func(p policy.Policy, lists bool) (stats, listings int) {
		t.Helper()
		s := machine()
		counting := &countingFS{Tree: s.FS.(hostfs.Tree), lists: lists}
		s.FS, s.Homes = counting, []string{"/home/bo"}
		mustResolve(t, p, Request{}, s)
		return counting.stats, counting.listings
	}
	base, _ := cost(workspacePolicy(), false)
	for _, format := range []string{"~/.absent/%d", "/absent/x/%d", "**/.git/hooks%d", "~/.config/absent/more/%d", "${UNSET:-~/.absent}/%d"} {
		if got, _ := cost(manyRules(format), false); got > base+8 {
			t.Errorf("1000 rules %q take %d looks more", format, got-base)
		}
	}
	got, listings := cost(manyRules("~/.name%d"), true)
	if got > base+listAfter+4 || listings != 1 {
		t.Errorf("1000 rules for one folder take %d looks more and %d listings", got-base, listings)
	}
	if got, _ := cost(manyRules("/usr/bin/name%d"), true); got < base+900 {
		t.Errorf("a folder outside of every home was listed: %d looks more", got-base)
	}
}

// F5 F14: a listing hides nothing that is there, in whatever case it is listed.
func TestListedFoldersKeepTheirFiles(t *testing.T) {
	s := machine()
	tree := s.FS.(hostfs.Tree)
	p := manyRules("~/.name%d")
	for _, name := range []string{"/home/ana/.name7", "/home/ana/.name777", "/home/ana/.Late"} {
		tree[name] = "file"
	}
	late := rule(policy.Hidden, "~/.late")
	late.Optional = true
	p.Paths = append(p.Paths, late)
	want := mustResolve(t, p, Request{}, s)
	counting := &foldingFS{countingFS{Tree: tree, lists: true}}
	s.FS = counting
	got := mustResolve(t, p, Request{}, s)
	wantAccess(t, got, map[string]policy.Access{"/home/ana/.name7": policy.Hidden, "/home/ana/.name777": policy.Hidden, "/home/ana/.name8": policy.Read, "/home/ana/.late": policy.Hidden})
	if len(got.Absent) != len(want.Absent)-1 || counting.listings == 0 {
		t.Errorf("%d paths are absent after %d listings, want %d", len(got.Absent), counting.listings, len(want.Absent)-1)
	}
}

// A foldingFS finds files whatever the case of their names.
type foldingFS struct{ countingFS }

func (f *foldingFS) Lstat(p string) (hostfs.Info, error) {
	for q := range f.Tree {
		if strings.EqualFold(p, q) {
			p = q
		}
	}
	return f.countingFS.Lstat(p)
}

// N10: what a layout was made from includes what listings showed to be missing.
func TestLayoutKnowsWhatIsMissing(t *testing.T) {
	s := machine()
	s.FS = &countingFS{Tree: s.FS.(hostfs.Tree), lists: true}
	l, err := ResolveLayout(manyRules("~/.name%d"), Request{Workspace: "/home/ana/project"}, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/home/ana/.name0", "/home/ana/.name500", "/home/ana/.name999"} {
		if kind, ok := l.Looked()[p]; !ok || kind != hostfs.Missing {
			t.Errorf("%s: %v, %v", p, kind, ok)
		}
	}
}

// W3: names are matched with "*" and nothing else.
func TestMatchName(t *testing.T) {
	for pattern, names := range map[string][]string{
		"A": {"A"}, "A*": {"A", "AB", "A/B"}, "*_KEY": {"_KEY", "X_KEY", "_KEY_KEY"}, "*API_KEY*": {"API_KEY", "MY_API_KEYS", "API_API_KEY"},
		"A*B*C": {"ABC", "AxBxBxC", "ABBCC"}, "[A]*": {"[A]", "[A]x"},
	} {
		for _, n := range names {
			if !matchName(pattern, n) {
				t.Errorf("%q does not match %q", pattern, n)
			}
		}
		for _, n := range []string{"", "B", "xA", "ACB", "X_KEYS", "API_KE", "AxB"} {
			if matchName(pattern, n) && !slices.Contains(names, n) && pattern != "A*" {
				t.Errorf("%q matches %q", pattern, n)
			}
		}
	}
}
