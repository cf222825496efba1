package denials

import (
	"path"
	"slices"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/plan"
)

// A habit is something that programs try by themselves and do well without: a
// refusal of it is recorded, and is no reason for what went wrong later.
type habit struct {
	ops      []plan.Op
	programs []string // patterns; any, if there are none
	paths    []string // patterns, of files or of folders around them
	reason   string
}

// A call is a habit of asking hosts. The program is known by its file.
type call struct {
	hosts    []string
	programs []string // names of files
	argument string   // part of the command line, if the program has other uses
	reason   string
}

var calls = []call{
	{[]string{"api.github.com"}, []string{"codex"}, "", "Codex goes on without knowing of a newer version"},
	{[]string{"github.com"}, []string{"git-remote-http", "git-remote-https", "codex"}, "https://github.com/openai/plugins.git", "Codex goes on without its list of plugins"},
	{[]string{"registry.npmjs.org"}, []string{"opencode"}, "", "opencode goes on without the package that plugins are written with"},
	{[]string{"accounts.google.com", "android.clients.google.com", "clients2.google.com", "redirector.gvt1.com", "www.google.com", "2001:4860:4860::8888"}, chromium, "", "the browser goes on without asking its maker"},
}

// chromium are the names of Chromium and Chrome, and of their thread that connects.
var chromium = []string{"chromium", "chrome", "chrome-headless-shell", "headless_shell", "Chrome_ChildIOT"}

func (c *call) covers(d *plan.Denial) bool {
	return slices.Contains(c.hosts, d.Host) && slices.Contains(c.programs, path.Base(d.Program)) && (c.argument == "" || slices.Contains(d.Argv, c.argument))
}

var (
	changes = []plan.Op{plan.OpWrite, plan.OpCreate, plan.OpMkdir, plan.OpRename, plan.OpUnlink, plan.OpLink, plan.OpSymlink}
	reads   = []plan.Op{plan.OpRead}
)

// habits are the well-known ones. A file that holds a secret is among them only
// for programs that look for it whatever they do.
var habits = []habit{
	{changes, nil, []string{"__pycache__", "*.pyc"}, "Python goes on without a cache of compiled modules"},
	{changes, []string{"git"}, []string{".git/index.lock", ".git/modules/**/index.lock", ".git/worktrees/*/index.lock"}, "git takes this lock only to make the next status faster"},
	{changes, []string{"git"}, []string{".git/gc.pid*", ".git/objects/maintenance.lock", ".git/FETCH_HEAD"}, "git tidies up another time"},
	{changes, nil, []string{".cache"}, "programs go on without a cache"},
	{changes, []string{"vim*", "vi", "view", "nvim"}, []string{".viminfo", ".viminf*.tmp", ".local/state/nvim", ".*.sw?"}, "the editor goes on without its history"},
	{changes, []string{"less", "man"}, []string{".lesshst*", ".local/state/lesshst*"}, "the pager goes on without its history"},
	{changes, nil, []string{".bash_history*", ".zsh_history*", ".zcompdump*", ".python_history", ".node_repl_history", ".sqlite_history", ".psql_history"}, "the history of what was typed is not kept"},
	{changes, []string{"wget"}, []string{".wget-hsts"}, "wget goes on without its list of sites"},
	{changes, nil, []string{".npm/_logs", ".npm/_update-notifier-last-checked", ".config/configstore"}, "npm goes on without a log of its own"},
	{changes, []string{"go"}, []string{".config/go/telemetry"}, "go goes on without counting its use"},
	{[]plan.Op{plan.OpMkdir}, []string{"go"}, []string{".config"}, "go goes on without counting its use"},
	{[]plan.Op{plan.OpMkdir}, chromium, []string{".config/{chromium,google-chrome*}/Crash Reports"}, "the browser goes on without reports of crashes"},
	{changes, nil, []string{".cache/dconf"}, "desktop libraries go on without their settings"},
	{reads, []string{"mysql*", "mariadb*"}, []string{".my.cnf", ".mylogin.cnf"}, "it is looked for at every start, and not every account has a password"},
	// Agents under their presets. Their threads have names of their own.
	{[]plan.Op{plan.OpCreate}, []string{"Bun Pool *", "claude"}, []string{".claude.json.tmp.*", ".claude/.last-cleanup"}, "Claude Code goes on, and asks again what it would have noted"},
	{[]plan.Op{plan.OpMkdir}, []string{"Bun Pool *", "claude"}, []string{".claude/plugins"}, "Claude Code goes on without a folder for plugins"},
	{[]plan.Op{plan.OpUnlink}, []string{"Bun Pool *", "claude"}, []string{".claude/{plans,session-env,tasks,telemetry,todos,statsig,debug,sessions,file-history,paste-cache,shell-snapshots}"}, "Claude Code removes folders that are empty"},
	{[]plan.Op{plan.OpMkdir}, []string{"tokio*", "codex"}, []string{".codex/skills"}, "Codex goes on without the skills that come with it"},
	{[]plan.Op{plan.OpRename}, []string{"tokio*", "codex"}, []string{".codex/config.toml"}, "Codex goes on without noting that the folder is trusted"},
	{changes, []string{"Bun Pool *", "opencode"}, []string{".config/opencode/{package.json,package-lock.json,bun.lock,node_modules,.package*}"}, "opencode goes on without the package that plugins are written with"},
	{[]plan.Op{plan.OpCreate}, []string{"cline"}, []string{".cline/data/settings/providers.json.*.tmp"}, "Cline goes on without noting which model was used last"},
	{[]plan.Op{plan.OpCreate}, []string{"node", "qwen"}, []string{".qwen/extensions/extension-enablement.json.*.tmp"}, "Qwen Code goes on with the extensions that are enabled"},
	{changes, nil, []string{"/var/cache/fontconfig", ".fontconfig", "mesa_shader_cache*"}, "it is made anew when it is needed"},
	{changes, nil, []string{".dbus", ".config/pulse", ".local/share/recently-used.xbel*"}, "desktop libraries keep notes that nothing depends on"},
	{changes, nil, []string{"/proc/self/oom_score_adj", "/proc/*/oom_score_adj", "/proc/self/timerslack_ns"}, "a wish about the process's own priority"},
	{reads, []string{"git*", "curl", "wget", "pip*", "python*"}, []string{".netrc", "_netrc"}, "it is looked for at every request, and few servers want a password"},
	{reads, []string{"npm*", "node", "yarn", "pnpm"}, []string{".npmrc", ".yarnrc*"}, "it is looked for at every start, and the public registry wants no password"},
	{reads, []string{"pip*", "python*", "twine"}, []string{".pypirc", "pip/pip.conf", ".pip/pip.conf"}, "it is looked for at every start, and the public index wants no password"},
	{reads, []string{"git*"}, []string{".git-credentials", ".config/git/credentials"}, "it is looked for at every request, and public repositories want no password"},
	{reads, []string{"bash", "sh", "dash", "zsh", "fish"}, []string{".*_history", "fish_history"}, "the shell goes on without its history"},
	{reads, nil, []string{"/proc/sys", "/sys", "/proc/kcore", "/proc/kallsyms"}, "programs ask what machine they run on, and go on if they are not told"},
}

// noiseOf is why a refusal need not be told, or empty.
func noiseOf(d *plan.Denial) string {
	for i := range calls {
		if calls[i].covers(d) {
			return calls[i].reason
		}
	}
	if d.Host != "" || d.Path == "" {
		return ""
	}
	for i := range habits {
		if habits[i].covers(d) {
			return habits[i].reason
		}
	}
	return ""
}

func (h *habit) covers(d *plan.Denial) bool {
	called := func(pattern string) bool {
		ok, _ := path.Match(pattern, d.Program)
		return ok
	}
	about := func(pattern string) bool { return pathx.MatchGlob(pattern, d.Path) }
	return slices.Contains(h.ops, d.Op) && (len(h.programs) == 0 || slices.ContainsFunc(h.programs, called)) && slices.ContainsFunc(h.paths, about)
}
