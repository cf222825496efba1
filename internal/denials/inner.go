package denials

import (
	"path"
	"slices"
	"strings"
)

// An inner is a kind of program that makes a sandbox or a container of its own, and what to do
// about it in a sandbox of cloche, where it gets no namespaces.
type inner struct {
	programs []string // patterns
	instead  string
}

var inners = []inner{
	{[]string{"chromium*", "chrome", "chrome-*", "google-chrome*", "headless_shell", "msedge*", "brave*", "vivaldi*", "opera*", "electron*"}, "start it with --no-sandbox"},
	{[]string{"firefox*", "librewolf*", "thunderbird*"}, "it goes on without its own"},
	{[]string{"podman", "buildah", "rootlesskit", "dockerd-rootless*", "crun", "runc", "flatpak*", "systemd-nspawn", "lxc-*"}, "start the container outside"},
	{[]string{"nix", "nix-*"}, "start it with --option sandbox false"},
	{[]string{"cloche"}, "the inner one has Landlock alone"},
}

// agentsWithSandbox are the agents that make a sandbox for each of their commands, by their
// presets. `cloche agent run` switches it off.
var agentsWithSandbox = []string{"claude", "codex", "gemini", "qwen", "cursor"}

// WithoutNamespaces is what to do where a program is refused a namespace of its own. lines are the
// command lines of the program and of those that started it, the program's first. They may say
// anything: they only choose among texts.
func WithoutNamespaces(lines [][]string) string {
	const none = "no option allows it"
	if len(lines) == 0 || len(lines[0]) == 0 {
		return none
	}
	name := path.Base(lines[0][0])
	for _, in := range inners {
		if slices.ContainsFunc(in.programs, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			return none + "; cloche confines it already, so " + in.instead
		}
	}
	own := agentOf(lines[0])
	if name == "bwrap" || strings.HasPrefix(name, "codex-") {
		for _, line := range lines[1:] {
			if own == "" {
				own = agentOf(line)
			}
		}
		if own == "" {
			return none + "; cloche confines the command already, so run it without bubblewrap"
		}
	}
	if slices.Contains(agentsWithSandbox, own) {
		return none + "; cloche confines the agent already: cloche agent run " + own + " starts it without a sandbox of its own"
	}
	return none + "; cloche confines it already, so if the program makes a sandbox of its own, switch that off"
}
