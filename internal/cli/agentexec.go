package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cloche-dev/cloche/internal/agents"
	"github.com/cloche-dev/cloche/internal/machine"
	"github.com/cloche-dev/cloche/internal/pathx"
)

// A shellCall is a script that an agent wants to run.
type shellCall struct {
	script string
	// shell is the path of the shell; empty is bash, or else sh. login: as a login shell.
	shell string
	login bool
	// rest follows the script: $0, $1 and so on.
	rest []string
	// claude: Claude Code calls this program as its prefix.
	claude bool
}

// asShell reads the arguments that agents call a shell with: -c SCRIPT, -l -c SCRIPT, -lc
// SCRIPT, -i -c SCRIPT. So cloche can be the shell that an agent's settings or SHELL name.
func asShell(args []string) (shellCall, bool) {
	if len(args) == 2 && args[0] == agents.ClaudeOption {
		return shellCall{script: args[1], claude: true}, true
	}
	// What hooks write, read without the tree of commands, which takes longer.
	if len(args) == 4 && slices.Equal(args[:3], []string{"agent", "exec", "--"}) {
		return shellCall{script: args[3]}, true
	}
	var s shellCall
	for i, arg := range args {
		if len(arg) < 2 || arg[0] != '-' || strings.Trim(arg[1:], "lic") != "" {
			return s, false
		}
		s.login = s.login || strings.Contains(arg, "l")
		if strings.Contains(arg, "c") {
			if i+1 == len(args) {
				return s, false
			}
			s.script, s.rest = args[i+1], args[i+2:]
			return s, true
		}
	}
	return s, false
}

func (a *app) agentExecCommand() *cobra.Command {
	var s shellCall
	var script string
	c := &cobra.Command{
		Use:   "exec [--shell PATH] [--] SCRIPT",
		Short: "Run a script for an agent in a sandbox",
		Long: `Run a script in a sandbox, under the policy of the project that the agent was
started in. After cloche agent install, agents call this for each command.

It has no flag that allows anything, so an agent may be allowed to call it freely.
The project is found from the folder of the agent's own process, and not from the
one that the model names. Inside a sandbox of cloche the script just runs.

cloche itself can also be called as a shell: cloche -c SCRIPT is the same.`,
		Example: "  cloche agent exec -- 'make && make test'",
		Args: func(c *cobra.Command, list []string) error {
			if c.Flags().Changed("command") {
				return noArgs(c, list)
			}
			return args(1, 1, "SCRIPT")(c, list)
		},
		RunE: func(c *cobra.Command, args []string) error {
			s.script = script
			if len(args) == 1 {
				s.script = args[0]
			}
			return a.agentExec(c.Context(), s)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	textFlag(f, &s.shell, "shell", "PATH", groupRun, "the shell that runs the script (default: bash, else sh)")
	f.VarP(&flagValue{group: groupRun, placeholder: "SCRIPT", values: names(), set: func(value string) error { script = value; return nil }},
		"command", "c", "the script, as shells take it")
	return c
}

// argv is the command line of the shell.
func (s *shellCall) argv() ([]string, error) {
	if s.shell == "" {
		s.shell = "/bin/bash"
		if _, err := os.Stat(s.shell); err != nil {
			s.shell = "/bin/sh"
		}
	}
	if !filepath.IsAbs(s.shell) {
		return nil, fmt.Errorf("--shell %s: is not an absolute path; write one such as /bin/zsh", s.shell)
	}
	argv := []string{s.shell}
	// The policy shows a command's own program, wherever it is. No agent may choose what that is: a shell of the sandbox has to find it.
	if dir := filepath.Dir(filepath.Clean(s.shell)); dir != "/bin" && dir != "/usr/bin" {
		argv = []string{"/bin/sh", "-c", `exec "$0" "$@"`, s.shell}
	}
	if s.login {
		argv = append(argv, "-l")
	}
	return append(append(argv, "-c", s.script), s.rest...), nil
}

// agentExec runs a script of an agent in the sandbox of its project.
func (a *app) agentExec(ctx context.Context, s shellCall) error {
	argv, err := s.argv()
	if err != nil {
		return err
	}
	if machine.Nested() || s.claude && ofClaudeItself(s.script) {
		return replaceProcess(argv[0], argv)
	}
	r := &runFlags{forAgent: true, apart: true}
	r.report.fd = noFD
	agent, err := r.enterProject()
	if err != nil {
		return err
	}
	keeper := keeperOf(agent)
	if status, taken := a.runKept(keeper, &s, r.chdir); taken {
		return ended(status)
	}
	if s.claude {
		if file, done := claudeFolderFile(s.script); file != "" {
			defer done()
			r.set("rw", file)
		}
	}
	err = a.run(ctx, r, argv)
	if a.couldBeKept() {
		keeper.start()
	}
	return err
}

// ofClaudeItself reports whether Claude Code starts a hook or a server of its own, and no command of the
// model. Its prefix is for all of them. It tells them apart by this variable, which it sets
// itself for each command of the model, whatever a project's settings say; such a command
// also ends with a note of its folder.
func ofClaudeItself(script string) bool {
	return strings.HasSuffix(os.Getenv("AI_AGENT"), "_harness") && !strings.Contains(script, claudeNote)
}

// claudeNote is how a command of Claude Code ends: with a note of the folder that the next one starts in.
const claudeNote = " && pwd -P >| "

// cutClaudeNote takes the note off a script, and returns the file for it. No other name is accepted.
func cutClaudeNote(script string) (rest, file string) {
	i := strings.LastIndex(script, claudeNote)
	if i < 0 {
		return script, ""
	}
	file = script[i+len(claudeNote):]
	id, isOne := strings.CutPrefix(file, "/tmp/claude-")
	id, isNote := strings.CutSuffix(id, "-cwd")
	if !isOne || !isNote || id == "" || len(id) > 16 || strings.Trim(id, "0123456789abcdef") != "" {
		return script, ""
	}
	return script[:i], file
}

// claudeFolderFile makes the file for that note, which has to be written to the real /tmp. done removes a file that stayed
// empty: the command ended before the note.
func claudeFolderFile(script string) (file string, done func()) {
	_, file = cutClaudeNote(script)
	if file == "" {
		return "", nil
	}
	// One that is there already is not taken: it might be a link.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", nil
	}
	_ = f.Close()
	return file, func() {
		if info, err := os.Lstat(file); err == nil && info.Size() == 0 {
			_ = os.Remove(file)
		}
	}
}

// enterProject changes to the folder that the agent was started in, so that the workspace
// is found from there, while the command starts where the agent says. A model may name any folder
// for a command, and would otherwise choose what it can write.
//
// An agent that was started in the home folder, or above, has no project: then the
// folder of the command counts, as it does for cloche run.
//
// The agent is 0 if it is not known.
func (r *runFlags) enterProject() (agent int, err error) {
	cwd, err := workingFolder()
	if err != nil {
		return 0, err
	}
	pid := agentProcess()
	if pid == 0 {
		return 0, nil
	}
	// By the kernel's link and not by its text: a command can remove or move the folder, and put a link to another one in its place.
	if err := os.Chdir(folderOf(pid)); err != nil {
		return 0, fmt.Errorf("the folder of the agent: %w; start the agent in a folder that you can enter", err)
	}
	dir, err := workingFolder()
	if err != nil {
		return 0, fmt.Errorf("the folder that the agent was started in: %w", err)
	}
	home, err := agentHome(pid)
	switch inside := pathx.Within(dir, cwd); {
	case dir == cwd:
		return pid, nil
	case dir == "/", inside && err == nil && pathx.Within(dir, home):
		return pid, changeBack(cwd)
	case !inside && err == nil && pathx.Within(dir, home):
		return 0, fmt.Errorf("the command is to run in %s, and the agent was started in %s; start the agent in the project", cwd, dir)
	}
	r.chdir = cwd
	return pid, nil
}

// changeBack changes to a folder, which must still be there under its name.
func changeBack(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if now, err := workingFolder(); err != nil || now != dir {
		return errors.Join(fmt.Errorf("%s was replaced; run the command again", dir), err)
	}
	return nil
}

// workingFolder returns the path of the working folder as the kernel knows it: without symbolic links, and whatever PWD says, which
// a project's settings can set. A command that runs at the same time may replace every folder that it can write by a link. So nobody may
// resolve the path again.
func workingFolder() (string, error) {
	dir, err := syscall.Getwd()
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("the working folder was removed; change to a folder that exists")
	}
	if err != nil {
		return "", fmt.Errorf("the working folder is not known: %w; change to a folder that you can enter", err)
	}
	if runtime.GOOS == "windows" { // where nothing is confined
		return filepath.EvalSymlinks(dir)
	}
	return dir, nil
}

// checkApart refuses a workspace that has cloche's own files in it. A project's settings can set variables for
// an agent's commands, and so have cloche read a policy of the project as the user's.
func (l *loaded) checkApart() error {
	return apart(l.workspace, l.dirs.Config, l.dirs.Data, l.dirs.State)
}

// errNotApart is why nothing is written to cloche's own folders either.
var errNotApart = errors.New("start the agent in a project's folder, with your own HOME")

// apart refuses a workspace, which is a real path, that one of cloche's own folders is in, or is reached through: a command could change a
// link on the way between the check and the use. It refuses folders below /proc too, where the links of a process lead into its sandbox.
func apart(root string, own ...string) error {
	for _, dir := range own {
		if leadsThrough(dir, root, "/proc") {
			return fmt.Errorf("cloche's own folder %s is in the workspace %s, or is reached through it or /proc, so that its policy could be the project's; %w", dir, root, errNotApart)
		}
	}
	return nil
}

// maxLinks bounds the links on the way to a folder, as Linux does.
const maxLinks = 40

// leadsThrough reports whether the way to a folder, whether it exists or not, leads through one of some others, which are real paths.
func leadsThrough(dir string, others ...string) bool {
	const separator = string(filepath.Separator)
	at, links := filepath.VolumeName(dir)+separator, 0
	names := strings.Split(dir[len(filepath.VolumeName(dir)):], separator)
	for len(names) > 0 {
		next := filepath.Join(at, names[0])
		names = names[1:]
		if slices.ContainsFunc(others, func(other string) bool { return pathx.Within(other, next) }) {
			return true
		}
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return true // nothing is found there
		}
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + separator
			target = target[len(filepath.VolumeName(target)):]
		}
		names = append(strings.Split(target, separator), names...)
	}
	return false
}

// maxAncestors bounds the way to the agent.
const maxAncestors = 32

// hubAgent is the program of Cline, whose daemon runs the commands of all projects. It says itself where
// each starts: its tool takes no folder from the model.
const hubAgent = "cline"

// agentHome is the home folder of the agent, without symbolic links: as it was when the agent started. The
// variable that this process has may be set by a project's settings.
func agentHome(pid int) (string, error) {
	home, err := os.UserHomeDir()
	if environ, readErr := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ"); readErr == nil {
		for v := range strings.SplitSeq(string(environ), "\x00") {
			if value, ok := strings.CutPrefix(v, "HOME="); ok {
				home, err = value, nil
				break
			}
		}
	}
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(home)
}

// agentProcess is the agent that started this process: the nearest process above
// that is no shell, or the next one whose folder can be read. It is 0 where the system does not tell.
func agentProcess() int {
	past := false
	pid := os.Getppid()
	for n := 0; pid > 1 && n < maxAncestors; n++ {
		name, parent, ok := processStat(pid)
		if !ok || !past && name == hubAgent {
			return 0
		}
		if past = past || !isShell(name); past {
			if _, err := os.Readlink(folderOf(pid)); err == nil {
				return pid
			}
		}
		pid = parent
	}
	return 0
}

// folderOf is a link of the kernel to the working folder of a process.
func folderOf(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/cwd" }

// processStat returns the name of a process, and its parent.
func processStat(pid int) (name string, parent int, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	start, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if err != nil || start < 0 || end < start {
		return "", 0, false
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return string(text[start+1 : end]), parent, err == nil
}

func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "cloche", "env", "timeout":
		return true
	}
	return false
}

func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hook NAME",
		Short: "Answer the hook of an agent",
		Long: `Answer the hook of an agent: read the tool call on standard input, and write the
answer in the agent's own format. A shell command is rewritten to run under cloche
agent exec. Other tools are left alone. Whatever the hook does not understand, it
blocks, and says why.

cloche agent install writes this command into the agent's settings.`,
		Example: "  cloche hook gemini",
		Args:    args(1, 1, "NAME"),
		RunE:    func(_ *cobra.Command, args []string) error { return a.answerHook(args[0]) },
	}
}

// hookStatus blocks in every agent that looks at the status of a hook.
const hookStatus = 2

func (a *app) answerHook(name string) error {
	agent, err := agents.Find(name)
	if err != nil {
		a.words.fail(err)
		return statusError(hookStatus)
	}
	var answer agents.Reply
	input, err := io.ReadAll(io.LimitReader(a.in, agents.MaxInput+1))
	// The settings call this program by the path that they also have elsewhere.
	self := os.Args[0]
	if !filepath.IsAbs(self) {
		var selfErr error
		self, selfErr = ownPath()
		err = errors.Join(err, selfErr)
	}
	if err != nil {
		answer = agent.Block(err)
	} else {
		answer = agent.Answer(input, agents.Caller{Cloche: self, Prefix: func() error { return checkPrefix(agent, self) }})
	}
	_, err = io.WriteString(a.out, answer.Stdout)
	_, _ = io.WriteString(a.err, answer.Stderr)
	if err != nil {
		return statusError(hookStatus)
	}
	return ended(answer.Status)
}

// checkPrefix checks the prefix of Claude Code. Inside a sandbox of cloche it does not matter.
func checkPrefix(claude *agents.Agent, self string) error {
	if machine.Nested() {
		return nil
	}
	dirs, err := machine.OwnDirs()
	if err != nil {
		return err
	}
	if _, err := new(runFlags).enterProject(); err != nil {
		return err
	}
	p, err := new(scopeFlags).places()
	if err != nil {
		return err
	}
	p.Cloche = self
	root := p.Project
	if root == "" {
		if root, err = workingFolder(); err != nil {
			return err
		}
	}
	// What was installed is read below the home folder, or where a variable says. A project's settings
	// can set both. An agent that was started in the home folder has no project.
	if home, err := agentHome(agentProcess()); err != nil || !pathx.Within(root, home) {
		if err := apart(root, dirs.Data); err != nil {
			return err
		}
	}
	installed, err := agents.Open(dirs.Data).Installed(claude.Name, p.Project)
	if err != nil {
		return err
	}
	return agents.CheckPrefix(append(installed, claude.System(p)...), os.Getenv)
}
