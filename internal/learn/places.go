package learn

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
)

// A group is a folder of a tool. A program that needs one file in it gets a rule for
// all of it.
type group struct {
	// dir is relative to the home folder.
	dir string
	// what is the reason that is written with the rule.
	what string
	// cache says that losing or changing the folder's content costs only time, because the
	// tool checks what it reads from there.
	cache bool
}

// groups are the folders of well-known tools. A folder from which programs are run
// without a check is not marked as a cache, whatever its name.
var groups = []group{
	{".bun/install/cache", "packages of Bun", true},
	{".bundle/cache", "packages of Bundler", true},
	{".cache/bazel", "build results of Bazel", true},
	{".cache/ccache", "build results of ccache", true},
	{".cache/go-build", "build results of Go", true},
	{".cache/golangci-lint", "results of golangci-lint", true},
	{".cache/pip", "packages of pip", true},
	{".cache/pnpm", "metadata of pnpm", true},
	{".cache/pypoetry/cache", "packages of Poetry", true},
	{".cache/sccache", "build results of sccache", true},
	{".cache/staticcheck", "results of staticcheck", true},
	{".cache/uv", "packages of uv", true},
	{".cache/yarn", "packages of Yarn", true},
	{".cache/zig", "build results of Zig", true},
	{".cargo/git", "packages of cargo", true},
	{".cargo/registry", "packages of cargo", true},
	{".ccache", "build results of ccache", true},
	{".composer/cache", "packages of Composer", true},
	{".config/go", "settings of Go", false},
	{".gradle/caches", "packages and build results of Gradle", true},
	{".gradle/daemon", "logs of Gradle", true},
	{".gradle/wrapper", "the Gradle that a project asks for", false},
	{".ivy2/cache", "packages of Ivy", true},
	{".julia", "packages of Julia", false},
	{".local/share/mise/installs", "tools that mise installed", false},
	{".local/share/pnpm/store", "packages of pnpm", true},
	{".local/share/uv", "tools that uv installed", false},
	{".m2/repository", "packages of Maven", true},
	{".npm/_cacache", "packages of npm", true},
	{".npm/_logs", "logs of npm", true},
	{".nuget/packages", "packages of NuGet", true},
	{".nvm/versions", "versions of Node.js", false},
	{".pub-cache", "packages of Dart", true},
	{".pyenv", "versions of Python", false},
	{".rbenv", "versions of Ruby", false},
	{".rustup/toolchains", "versions of Rust", false},
	{".sbt", "packages of sbt", false},
	{".yarn/berry/cache", "packages of Yarn", true},
	{"Library/Caches/Homebrew", "packages of Homebrew", true},
	{"Library/Caches/go-build", "build results of Go", true},
	{"Library/Caches/pip", "packages of pip", true},
	{"go/pkg/mod", "modules of Go, checked against go.sum", true},
	{"go/pkg/sumdb", "what the checksum database of Go has said", true},
	{"sdk", "versions of Go", false},
}

// oneEach are folders of the home in which each program has its own folder.
var oneEach = []string{".cache", ".config", ".local/share", ".local/state", "Library/Caches", "Library/Application Support"}

// Cache returns the folder of the well-known cache that a path belongs to.
func Cache(home, p string) (root string, ok bool) {
	m := Machine{Home: home}
	g, root, ok := m.group(p)
	return root, ok && g.cache
}

// group returns the group that a path belongs to, and the group's folder.
func (m *Machine) group(p string) (g group, root string, ok bool) {
	if m.Home == "" || m.Home == "/" {
		return g, "", false
	}
	for _, g := range groups {
		if root := path.Join(m.Home, g.dir); pathx.Within(root, p) {
			return g, root, true
		}
	}
	for _, dir := range oneEach {
		rest, below := strings.CutPrefix(p, path.Join(m.Home, dir)+"/")
		name, _, deeper := strings.Cut(rest, "/")
		if below && deeper {
			return group{what: "what " + name + " keeps"}, path.Join(m.Home, dir, name), true
		}
	}
	return g, "", false
}

// codeParts are names of folders in which shells and desktops look for programs or
// start-up files, at any depth below the home folder.
var codeParts = []string{"bin", "sbin", "shims", "autostart", "autoload", "completions", "site-functions", "profile.d", "bashrc.d", "zshrc.d"}

// codeFolders are prefixes of names of folders in the home from which shells and
// desktops run code: start-up files, extensions, tools in PATH.
var codeFolders = []string{
	".antigen", ".asdf", ".bash", ".composer", ".deno", ".emacs", ".fish", ".fzf", ".gem", ".gnome", ".goenv", ".jenv", ".kde", ".krew", ".nix-", ".nodenv", ".nvm",
	".oh-my-", ".opam", ".prezto", ".profile", ".pyenv", ".rbenv", ".rvm", ".sdkman", ".tmux", ".vim", ".volta", ".xinit", ".xsession", ".yarn", ".zfunc", ".zinit", ".zplug", ".zprezto", ".zsh",
}

// codeOwners are the programs whose folders in [oneEach] contain code that the desktop
// or the shell runs.
var codeOwners = []string{
	"applications", "autostart", "awesome", "bash", "bash-completion", "bspwm", "caja", "caja-python", "cinnamon", "dbus-1", "direnv", "emacs", "environment.d", "file-manager", "fish",
	"flatpak", "git", "gnome-shell", "gtk-3.0", "gtk-4.0", "hypr", "i3", "kio", "kservices5", "kservices6", "kwin", "mise", "nautilus", "nautilus-python", "nemo", "nemo-python", "nvim",
	"openbox", "plasma", "plasma-workspace", "sway", "systemd", "thumbnailers", "Thunar", "tmux", "vim", "xfce4", "zsh", //nolint:misspell // the name of a directory
}

// runsCode reports whether the user's shell or desktop runs code from a path in the
// home, or from a folder bin in it. A file that a command leaves there runs outside at
// the next login, or when its name is typed.
func (m *Machine) runsCode(p string) bool {
	rest, ok := strings.CutPrefix(p, m.Home+"/")
	if !ok || m.Home == "" || pathx.Within(m.Workspace, p) {
		return false
	}
	parts := strings.Split(rest, "/")
	if slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(codeParts, part) }) ||
		slices.ContainsFunc(codeFolders, func(name string) bool { return strings.HasPrefix(parts[0], name) }) {
		return true
	}
	for _, dir := range oneEach {
		below, ok := strings.CutPrefix(rest, dir+"/")
		name, _, _ := strings.Cut(below, "/")
		if ok && slices.Contains(codeOwners, name) {
			return true
		}
	}
	return m.exists(path.Join(p, "bin"))
}

// broad reports whether a folder contains unrelated things, so that a rule for it would
// allow much more than the command needs.
func (m *Machine) broad(dir string) bool {
	if pathx.Within(dir, m.Home) || dir != m.Workspace && pathx.Within(dir, m.Workspace) {
		return true
	}
	if m.Home != "" && slices.ContainsFunc(oneEach, func(d string) bool { return pathx.Within(dir, path.Join(m.Home, d)) }) {
		return true
	}
	return slices.Contains([]string{"/opt", "/srv", "/mnt", "/media", "/home", "/Users", "/Volumes", "/tmp", "/var/tmp", "/root", "/private"}, dir)
}

// systemDirs are the folders of the system, which all users share.
var systemDirs = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr",
	"/var", "/nix", "/snap", "/System", "/Library", "/Applications", "/private/etc", "/private/var"}

// system reports whether a path belongs to the system, where a change affects every
// program.
func (m *Machine) system(p string) bool {
	if m.Home != "" && m.Home != "/" && pathx.Within(m.Home, p) || m.Workspace != "" && pathx.Within(m.Workspace, p) {
		return false
	}
	return p == "/" || slices.ContainsFunc(systemDirs, func(d string) bool { return pathx.Within(d, p) })
}

// short returns a path with "~" for the home folder.
func (m *Machine) short(p string) string {
	if rest, ok := strings.CutPrefix(p, m.Home+"/"); ok && m.Home != "" {
		return "~/" + rest
	}
	if p == m.Home {
		return "~"
	}
	return p
}
