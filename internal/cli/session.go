package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/audit"
	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/config"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

// A loaded policy with the places that go with it.
type loaded struct {
	config.Loaded
	dirs      host.Dirs
	workspace string // absolute, without symbolic links when it was found
	why       string // why it is the workspace
	dir       string // where commands start, absolute
	document  string // what urn:cloche:document stands for, absolute, or empty
	// base is the policy without what was granted.
	base policy.Policy
	// skipped has a notice for each grant that the command line overrides.
	skipped []plan.Notice
}

// load finds and merges everything that makes up the policy.
func (s *sessionFlags) load() (*loaded, error) { return s.loadWith(func(*config.Options) {}) }

// loadWith is load with other options than those of the command line alone.
func (s *sessionFlags) loadWith(change func(*config.Options)) (*loaded, error) {
	dirs, err := machine.OwnDirs()
	if err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("the working folder is not known: %w; change to a folder that exists", err)
	}
	here, err := workingFolder()
	if err != nil {
		return nil, err
	}
	l := &loaded{dirs: dirs, workspace: here, why: config.WhyHere}
	if s.workspace != "" {
		l.why = config.WhyNamed
		if l.workspace, err = folder("--workspace", s.workspace); err != nil {
			return nil, err
		}
		if l.workspace, err = filepath.EvalSymlinks(l.workspace); err != nil {
			return nil, fmt.Errorf("--workspace %s: %w", s.workspace, err)
		}
	} else if here == "/" {
		return nil, errors.New("the working folder is /, and the whole machine would be the workspace; change to a project's folder, or name one with --workspace")
	}
	doc, err := s.commandDocument(filepath.ToSlash(cwd))
	if err != nil {
		return nil, err
	}
	options := config.Options{
		Workspace: l.workspace, ConfigDir: dirs.Config, DataDir: dirs.Data, NoProject: s.noProject,
		PolicyFiles: s.policyFiles, Capabilities: s.capabilities, Command: doc,
	}
	change(&options)
	if l.Loaded, err = config.Load(options); err != nil {
		return l, err
	}
	if s.workspace == "" {
		l.findWorkspace(here)
	}
	if l.dir, err = s.startFolder(l.workspace, here); err != nil {
		return nil, err
	}
	if s.document != "" {
		if l.document, err = folder("--document", s.document); err != nil {
			return nil, err
		}
	}
	if err := l.applySwitch(cmp.Or(s.caller, os.Getpid())); err != nil {
		return l, err
	}
	l.base = l.Policy
	return l, l.addGrants()
}

// findWorkspace finds the workspace for the working folder, by the files that were loaded
// for that. The file ".git" that makes a folder the top of a work tree cannot be changed
// inside: without it the next workspace would be a larger one.
func (l *loaded) findWorkspace(here string) {
	w := config.FindWorkspace(here, "", l.Files)
	l.workspace, l.why = w.Dir, w.Why
	if rule, ok := w.Rule(); ok {
		l.Policy.Paths = append(slices.Clip(l.Policy.Paths), rule)
	}
}

// whereabouts say which folder is the workspace and why, for people.
func (l *loaded) whereabouts() string {
	return "the workspace is " + l.workspace + ", " + l.why + "; --workspace names another"
}

// folder makes the folder that a flag names absolute, if it is one.
func folder(flag, dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", flag, dir, err)
	}
	info, err := os.Stat(abs)
	switch {
	case os.IsNotExist(err):
		return "", fmt.Errorf("%s %s: no such folder; create it, or name another", flag, dir)
	case err != nil:
		return "", fmt.Errorf("%s %s: %w", flag, dir, err)
	case !info.IsDir():
		return "", fmt.Errorf("%s %s: is a file, not a folder; name a folder", flag, dir)
	}
	return abs, nil
}

// startFolder is where commands start: where --chdir says, or else where the
// caller is, if that is in the workspace.
func (s *sessionFlags) startFolder(workspace, here string) (string, error) {
	if s.chdir != "" {
		return folder("--chdir", s.chdir)
	}
	if rel, err := filepath.Rel(workspace, here); err == nil && filepath.IsLocal(rel) {
		return here, nil
	}
	return workspace, nil
}

// options are the options of the session for what was loaded.
func (l *loaded) options() []cloche.Option {
	opts := []cloche.Option{cloche.WithRealWorkspace(l.workspace), cloche.WithVersion(buildVersion())}
	if l.document != "" {
		opts = append(opts, cloche.WithDocument(l.document))
	}
	for _, f := range l.Files {
		opts = append(opts, cloche.WithPolicyFiles(audit.PolicyFile{Path: f.Path, SHA256: f.SHA256, Trusted: f.Trusted}))
	}
	opts = append(opts, cloche.WithOwnPrograms(ownPrograms()...))
	return append(opts, cloche.WithNotices(slices.Concat(l.notices(), l.skipped, l.homeNotice(), l.nestedNotice())...))
}

// ownPrograms are this program and the server beside it. They may lie where
// commands write: in the workspace, while cloche itself is worked on.
func ownPrograms() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, filepath.Join(filepath.Dir(self), serverName)}
}

// homeNotice warns of the whole home folder as the workspace: what a command
// leaves in a start-up file there runs at the next login.
func (l *loaded) homeNotice() []plan.Notice {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil || home != l.workspace {
		return nil
	}
	return []plan.Notice{{Kind: plan.NoticeWarning, Text: "the workspace is your home folder: its start-up files can be written; name a project's folder with --workspace"}}
}

// notices list what an untrusted file asks for and does not get.
func (l *loaded) notices() []plan.Notice {
	var out []plan.Notice
	for _, i := range l.Ignored {
		kind := plan.NoticeIgnored
		if i.Never {
			kind = plan.NoticeWarning // to trust the file does not help
		}
		out = append(out, plan.Notice{Kind: kind, Text: i.Text, Origin: i.Origin})
	}
	return out
}

// auditDir is the folder of the audit log.
func auditDir(d host.Dirs) string { return filepath.Join(d.State, "audit") }

// record writes an event of this process to the audit log.
func record(dirs host.Dirs, e audit.Event) error {
	e.UID, e.PID, e.Version = os.Getuid(), os.Getpid(), buildVersion()
	if err := audit.NewDir(auditDir(dirs)).Record(e); err != nil {
		return fmt.Errorf("the audit log cannot be written: %w", err)
	}
	return nil
}

// open loads the policy and opens a session for it.
func (s *sessionFlags) open(ctx context.Context, more ...cloche.Option) (*cloche.Session, *loaded, error) {
	l, err := s.load()
	if err != nil {
		return nil, nil, err
	}
	session, err := l.open(ctx, more...)
	return session, l, err
}

// open opens a session for what was loaded.
func (l *loaded) open(ctx context.Context, more ...cloche.Option) (*cloche.Session, error) {
	return cloche.Open(ctx, l.Policy, append(append(l.options(), cloche.WithInspection(inspectionOf(ctx))), more...)...)
}

// withAudit records every run. The folder is made before the plan, so that the
// very first command finds it masked like every later one; if it cannot be
// made, the first record says why.
func (l *loaded) withAudit() cloche.Option {
	_ = os.MkdirAll(l.dirs.State, 0o700)
	return cloche.WithAudit(audit.NewDir(auditDir(l.dirs)))
}

// noticeLine is a notice as one line.
func noticeLine(n plan.Notice) string {
	line := n.Text
	if !n.Origin.IsZero() && !strings.Contains(line, n.Origin.String()) {
		line = n.Origin.String() + ": " + line
	}
	if n.Kind == plan.NoticeIgnored && !strings.Contains(line, "cloche policy trust") {
		line += ": ignored, the file is not trusted (read it, then: cloche policy trust)"
	}
	return line
}
