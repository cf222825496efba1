//go:build unix

package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// F3 F7: the workspace is found, and nobody but the user widens it: neither a policy that
// is not trusted nor a ".git" that somebody else, or everybody, could have made.
func TestWorkspaceIsNotWidened(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(top, name) }
	for _, dir := range []string{"home/p/a/b", "repo/.git", "repo/a/b", "plain/a", "nested/.git", "nested/in/.git", "nested/in/d", "open/.git", "open/a", "link/a", "wt/a", "odd/a", "home/.git"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Chmod(at("open"), 0o777), os.Symlink(at("repo/.git"), at("link/.git")), os.WriteFile(at("wt/.git"), []byte("gitdir: /x\n"), 0o644),
		os.MkdirAll(at("empty/.git"), 0o755), os.MkdirAll(at("empty/a"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	project := func(dir string, trusted bool) File {
		return File{Path: at(dir + "/" + ProjectFileName), Layer: policy.LayerProject, Trusted: trusted}
	}
	cases := map[string]struct {
		dir   string
		files []File
		want  string
		why   string
	}{
		"nothing":                        {dir: "plain/a", want: "plain/a", why: WhyHere},
		"a repository":                   {dir: "repo/a/b", want: "repo", why: WhyGit},
		"its top":                        {dir: "repo", want: "repo", why: WhyGit},
		"a nested one":                   {dir: "nested/in/d", want: "nested/in", why: WhyGit},
		"a linked work tree":             {dir: "wt/a", want: "wt", why: WhyGit},
		"an empty .git ends the search":  {dir: "empty/a", want: "empty", why: WhyGit},
		"a folder that all may write":    {dir: "open/a", want: "open/a", why: WhyHere},
		"a link":                         {dir: "link/a", want: "link/a", why: WhyHere},
		"the home":                       {dir: "home/p/a/b", want: "home/p/a/b", why: WhyHere},
		"a trusted policy":               {dir: "repo/a/b", files: []File{project("repo/a", true)}, want: "repo/a", why: WhyProject},
		"of two the nearest":             {dir: "home/p/a/b", files: []File{project("home/p", true), project("home/p/a", true)}, want: "home/p/a", why: WhyProject},
		"one that is not trusted":        {dir: "plain/a", files: []File{project("plain", false)}, want: "plain/a", why: WhyHere},
		"not trusted, with trusted ones": {dir: "plain/a", files: []File{project(".", true), project("plain", false)}, want: "plain/a", why: WhyHere},
		"not trusted, and right here":    {dir: "plain/a", files: []File{project("plain/a", false)}, want: "plain/a", why: WhyProject},
		"not trusted, in a repository":   {dir: "repo/a/b", files: []File{project("repo/a", false)}, want: "repo", why: WhyGit},
		"that of the home":               {dir: "home/p/a/b", files: []File{project("home", true)}, want: "home/p/a/b", why: WhyHere},
		"around the home":                {dir: "home/p/a/b", files: []File{project(".", true)}, want: "home/p/a/b", why: WhyHere},
		"a user's file is no project's":  {dir: "plain/a", files: []File{{Path: at("plain/policy.yaml"), Layer: policy.LayerUser, Trusted: true}}, want: "plain/a", why: WhyHere},
	}
	for name, c := range cases {
		w := FindWorkspace(at(c.dir), at("home"), c.files)
		if w.Dir != at(c.want) || w.Why != c.why || (w.GitFile != "") != (name == "a linked work tree") {
			t.Errorf("%s: %+v, want %s, %s", name, w, at(c.want), c.why)
		}
	}
	for _, dir := range []string{"/", "/etc", "/tmp", "/usr", "/home"} {
		if !tooWide(dir, at("home")) {
			t.Errorf("%s would be a workspace", dir)
		}
	}
	if os.Geteuid() != 0 {
		return // the rest gives files away
	}
	const other = 12345
	for _, path := range []string{"repo/.git", "repo", "repo/a", "repo/a/b"} {
		if err := os.Chown(at(path), other, other); err != nil {
			t.Fatal(err)
		}
		if w := FindWorkspace(at("repo/a/b"), at("home"), nil); w.Dir != at("repo/a/b") {
			t.Errorf("%s belongs to another user: %+v", path, w)
		}
		if err := os.Chown(at(path), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if w := FindWorkspace(at("repo/a/b"), at("home"), nil); w.Dir != at("repo") {
		t.Errorf("all belongs to the user: %+v", w)
	}
}
