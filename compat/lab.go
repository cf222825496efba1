package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// suite is a file of compat/suites: a shell script that runs a suite in units.
//
//	NAME units [quick]  print the names of the units, or of those that CI runs
//	NAME setup          as the caller: install packages, put sources into the working directory
//	NAME prepare        as the user, outside: make the working directory ready; sources are in $SOURCE
//	NAME run UNIT       run one, and print its results in the suite's format
//
// Lines at its beginning, such as "# options: --preset go", say how it is run.
type suite struct {
	name    string
	path    string
	format  string
	options []string
	user    string        // root, user or both
	timeout time.Duration // of one unit
	units   []string
}

func (s *suite) runsAs(u testUser) bool { return s.user == "both" || s.user == u.kind }

// loadSuites reads the named suites of a directory, or all of them. A name may be that of
// one unit, SUITE/UNIT. With quick suites have fewer units, and those without any are
// left out.
func loadSuites(dir string, names []string, quick bool) ([]*suite, error) {
	if len(names) == 0 {
		all, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			names = append(names, e.Name())
		}
	}
	var found []*suite
	for _, name := range names {
		name, only, _ := strings.Cut(name, "/")
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		full, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		s := &suite{name: name, path: full, format: "tap", user: "both", timeout: 5 * time.Minute}
		for line := range strings.Lines(string(text)) {
			key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": ")
			if !strings.HasPrefix(line, "#") {
				break
			}
			switch {
			case !ok:
			case key == "format":
				s.format = value
			case key == "options":
				s.options = strings.Fields(value)
			case key == "as":
				s.user = value
			case key == "timeout":
				if s.timeout, err = time.ParseDuration(value); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		if parsers[s.format] == nil {
			return nil, fmt.Errorf("%s: there is no format %q", name, s.format)
		}
		args := []string{full, "units"}
		if quick {
			args = append(args, "quick")
		}
		out, err := exec.Command("bash", args...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s units: %w", name, err)
		}
		s.units = strings.Fields(string(out))
		if only != "" {
			if !slices.Contains(s.units, only) {
				return nil, fmt.Errorf("%s has no unit %s", name, only)
			}
			s.units = []string{only}
		}
		if len(s.units) > 0 {
			found = append(found, s)
		}
	}
	return found, nil
}

// testUser is somebody that suites are run as.
type testUser struct {
	kind string // root or user
	name string
	home string
	as   []string // the command that becomes this user
}

// findUsers returns the users to run as: root and cloche-test for root, else the caller.
func findUsers(only string) ([]testUser, error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	var found []testUser
	if me.Uid == "0" {
		found = append(found, testUser{kind: "root", name: me.Username, home: me.HomeDir})
		if me, err = user.Lookup("cloche-test"); err != nil && only != "root" {
			return nil, fmt.Errorf("%w: make it with useradd --system --create-home cloche-test", err)
		}
		if err == nil {
			found = append(found, testUser{
				kind: "user", name: me.Username, home: me.HomeDir,
				as: []string{"setpriv", "--reuid=" + me.Uid, "--regid=" + me.Gid, "--init-groups", "--inh-caps=-all"},
			})
		}
	} else {
		found = append(found, testUser{kind: "user", name: me.Username, home: me.HomeDir})
	}
	if only != "" {
		found = slices.DeleteFunc(found, func(u testUser) bool { return u.kind != only })
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("cannot run as %s", only)
	}
	return found, nil
}

// lab runs suites.
type lab struct {
	cloche, cache string
}

// setUp installs what a suite needs. Sources stay in the cache.
func (l *lab) setUp(ctx context.Context, s *suite) error {
	dir := filepath.Join(l.cache, "sources", s.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lib, err := filepath.Abs("scripts/lib.sh")
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "bash", s.path, "setup")
	c.Dir, c.Stdout, c.Stderr = dir, os.Stderr, os.Stderr
	c.Env = append(os.Environ(), "LIB="+lib)
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s setup: %w", s.name, err)
	}
	return nil
}

// comparison has the results of a suite as one user.
type comparison struct {
	outside, inside results
	all             []difference
	unknown         []difference
	gone            []entry
}

// row is a line of the table of results.
type row struct {
	suite, user, outside, inside string
	differences                  int
}

func (c *comparison) row(s *suite, u testUser) row {
	return row{s.name, u.kind, c.outside.counts(), c.inside.counts(), len(c.all)}
}

// compare runs a suite outside and inside. Units with a difference that is not known
// are run again, and only what differs both times is one: suites have unstable cases.
func (l *lab) compare(ctx context.Context, s *suite, u testUser, known []entry) (*comparison, error) {
	b, err := l.newBench(ctx, s, u)
	if err != nil {
		return nil, err
	}
	defer b.remove()
	c := &comparison{}
	if c.outside, c.inside, err = b.both(ctx, s.units); err != nil {
		return nil, err
	}
	c.all = differences(c.outside, c.inside)
	c.unknown = unlisted(c.all, s, u, known)
	if len(c.unknown) > 0 {
		var again []string
		for _, d := range c.unknown {
			unit, _, _ := strings.Cut(d.name, " ")
			again = append(again, unit)
		}
		slices.Sort(again)
		out, in, err := b.both(ctx, slices.Compact(again))
		if err != nil {
			return nil, err
		}
		twice := map[string]bool{}
		for _, d := range differences(out, in) {
			twice[d.name] = true
		}
		once := func(d difference) bool { return !twice[d.name] && slices.Contains(c.unknown, d) }
		c.all = slices.DeleteFunc(c.all, once)
		c.unknown = slices.DeleteFunc(c.unknown, func(d difference) bool { return !twice[d.name] })
	}
	for _, k := range known {
		occurs := slices.ContainsFunc(c.all, func(d difference) bool { return k.covers(s.name, u.kind, d.name) })
		if k.suite == s.name && (k.user == u.kind || k.user == "both") && slices.Contains(s.units, k.unit()) && !occurs {
			c.gone = append(c.gone, k)
		}
	}
	return c, nil
}

// unlisted returns the differences that are not known.
func unlisted(all []difference, s *suite, u testUser, known []entry) []difference {
	var found []difference
	for _, d := range all {
		if !slices.ContainsFunc(known, func(k entry) bool { return k.covers(s.name, u.kind, d.name) }) {
			found = append(found, d)
		}
	}
	return found
}

// bench is the place where one suite runs as one user. Its directory is the user's
// home for that time. The working directory is the same outside and inside, since
// the length of its name matters to some suites.
type bench struct {
	*lab
	*suite
	who  testUser
	home string
}

func (l *lab) newBench(ctx context.Context, s *suite, u testUser) (*bench, error) {
	home, err := os.MkdirTemp(u.home, "cloche-compat.")
	if err != nil {
		return nil, err
	}
	b := &bench{l, s, u, home}
	script := `cp -a "$1" source && cp "$2" suite && cp "$3" cloche && cp "$4" tap.sh && chmod -R a+rX .`
	if u.as != nil {
		script += ` && chown -R ` + u.name + `: .`
	}
	tap, err := filepath.Abs("compat/tap.sh")
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "sh", "-c", script, "sh", filepath.Join(l.cache, "sources", s.name), s.path, l.cloche, tap)
	c.Dir = home
	if out, err := c.CombinedOutput(); err != nil {
		b.remove()
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return b, nil
}

func (b *bench) remove() { _ = exec.Command("rm", "-rf", b.home).Run() }

// command returns a command of the suite as the user.
func (b *bench) command(ctx context.Context, before []string, args ...string) *exec.Cmd {
	limit := strconv.Itoa(int(b.timeout.Seconds()))
	words := slices.Concat(b.who.as, []string{"timeout", "--kill-after=10", limit}, before, []string{"bash", filepath.Join(b.home, "suite")}, args)
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	// timeout(1) ends the whole command with it.
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 30 * time.Second
	c.Dir = filepath.Join(b.home, "work")
	c.Env = []string{
		"HOME=" + b.home, "USER=" + b.who.name, "LOGNAME=" + b.who.name, "PATH=" + os.Getenv("PATH"),
		"LANG=C.UTF-8", "SHELL=/bin/bash", "TERM=xterm", "SOURCE=" + filepath.Join(b.home, "source"), "GOTOOLCHAIN=local",
	}
	return c
}

// fresh makes the working directory anew.
func (b *bench) fresh(ctx context.Context) error {
	c := exec.CommandContext(ctx, "sh", "-c", "rm -rf work && mkdir work && chown "+b.who.name+": work")
	c.Dir = b.home
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if out, err := b.command(ctx, nil, "prepare").CombinedOutput(); err != nil {
		return fmt.Errorf("prepare: %w: %s", err, out)
	}
	return nil
}

// both runs the units outside, then inside.
func (b *bench) both(ctx context.Context, units []string) (outside, inside results, err error) {
	if outside, err = b.side(ctx, "outside", units); err != nil {
		return nil, nil, err
	}
	inside, err = b.side(ctx, "inside", units)
	return outside, inside, err
}

// side runs the units on one side. That a unit ends well is a case, too, if no case
// of it says why it does not.
func (b *bench) side(ctx context.Context, side string, units []string) (results, error) {
	if err := b.fresh(ctx); err != nil {
		return nil, err
	}
	logs := filepath.Join(b.cache, "logs", b.name+"-"+b.who.kind)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	var before []string
	if side == "inside" {
		before = slices.Concat([]string{filepath.Join(b.home, "cloche"), "run", "--workspace", "."}, b.options, []string{"--"})
	}
	found := results{}
	for _, unit := range units {
		log, err := os.Create(filepath.Join(logs, strings.ReplaceAll(unit, "/", "-")+"."+side))
		if err != nil {
			return nil, err
		}
		c := b.command(ctx, before, "run", unit)
		c.Stderr = log
		out, err := c.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return nil, err
		}
		of, bad := parsers[b.format](string(out))
		if bad != nil {
			fmt.Fprintln(log, "compat:", bad)
		}
		whole := passed
		if cmp.Or(err, bad) != nil && !slices.Contains(slices.Collect(maps.Values(of)), failed) {
			whole = failed
		}
		of["as a whole"] = whole
		for name, o := range of {
			found[unit+" "+name] = o
		}
		_, err = log.Write(out)
		if err := cmp.Or(err, log.Close(), ctx.Err()); err != nil {
			return nil, err
		}
	}
	return found, nil
}
