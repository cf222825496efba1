package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// An agentHome is what an agent does with files of the home folder.
type agentHome struct {
	// reads can be read, keeps can be written and are the host's, own can be written
	// and are the sandbox's, refused can be neither changed nor made.
	reads, keeps, own, refused []string
}

var agentHomes = map[string]agentHome{
	"claude": {
		reads: []string{".claude/settings.json", ".claude/settings.local.json", ".claude.json", ".claude/skills/s/SKILL.md"},
		keeps: []string{".claude/.credentials.json", ".claude/history.jsonl", ".claude/projects/p.jsonl", ".claude/todos/t", ".claude/file-history/f", ".claude/paste-cache/p", ".claude/debug/d"},
		own:   []string{".claude/shell-snapshots/s.sh", ".claude/session-env/1/x.sh"},
		refused: []string{".claude/settings.json", ".claude/settings.local.json", ".claude.json", ".claude/hooks/x.sh", ".claude/plugins/p/x", ".claude/skills/s/SKILL.md",
			".claude/commands/x.md", ".claude/agents/x.md", ".claude/statusline.sh", ".claude/local/claude", ".local/bin/claude"},
	},
	"codex": {
		reads:   []string{".codex/config.toml", ".codex/AGENTS.md"},
		keeps:   []string{".codex/auth.json", ".codex/history.jsonl", ".codex/sessions/2026/x.jsonl", ".codex/log/x", ".codex/.credentials.json", ".codex/archived_sessions/x", ".codex/state_5.sqlite-wal"},
		own:     []string{".codex/shell_snapshots/s.sh", ".codex/tmp/arg0/x", ".codex/.tmp/plugins/x"},
		refused: []string{".codex/config.toml", ".codex/other.config.toml", ".codex/rules/default.rules", ".codex/hooks.json", ".codex/skills/x", ".codex/prompts/x.md", ".codex/plugins/x", ".codex/.env", ".codex/bin/x"},
	},
	"gemini": {
		reads:   []string{".gemini/settings.json", ".gemini/.env"},
		keeps:   []string{".gemini/oauth_creds.json"},
		own:     []string{".cache/.gemini/projects.json", ".cache/.gemini/history/1/.keep", ".cache/.gemini/tmp/bin/rg"},
		refused: []string{".gemini/settings.json", ".gemini/projects.json", ".gemini/projects.json.x.tmp", ".gemini/tmp/bin/rg", ".gemini/history/1/.git/config", ".gemini/x", ".gemini/extensions/x/gemini-extension.json", ".gemini/trustedFolders.json", ".gemini/policies/x.toml", ".gemini/.env", ".gemini/commands/x.toml"},
	},
	"opencode": {
		reads: []string{".config/opencode/opencode.json"},
		keeps: []string{".local/share/opencode/log/x", ".local/state/opencode/kv.json", ".config/opencode/.gitignore"},
		own:   []string{".cache/opencode/node_modules/x.js", ".local/share/opencode/bin/rg", ".local/share/opencode/snapshot/1/HEAD", ".local/share/opencode/cloche/opencode.db"},
		refused: []string{".config/opencode/opencode.json", ".config/opencode/plugin/x.js", ".config/opencode/x", ".opencode/bin/opencode",
			".local/share/opencode/auth.json", ".local/share/opencode/mcp-auth.json", ".local/share/opencode/opencode.db", ".local/share/opencode/opencode.db-wal"},
	},
	"copilot": {
		reads: []string{".copilot/config.json", ".copilot/mcp-config.json"},
		keeps: []string{".copilot/session-state/1/events.jsonl", ".copilot/logs/x", ".copilot/session-store.db", ".copilot/session-store.db-wal"},
		own:   []string{".cache/copilot/pkg/linux-x64/1/app.js"},
		refused: []string{".copilot/config.json", ".copilot/config.json.tmp.1", ".copilot/settings.json", ".copilot/hooks/x.json", ".copilot/mcp-config.json",
			".copilot/installed-plugins/x", ".copilot/agents/x.md", ".copilot/copilot-instructions.md"},
	},
	"cline": {
		reads: []string{".cline/data/settings/providers.json"},
		keeps: []string{".cline/data/sessions/1/x.json", ".cline/data/logs/x"},
		own:   []string{".cline/data/db/cron.db", ".cline/data/locks/hub/production.json", ".cline/cron/x", ".cline/data/cache/x"},
		refused: []string{".cline/hooks/PreToolUse", ".cline/rules/x.md", ".cline/data/settings/cline_mcp_settings.json", ".cline/data/settings/providers.json",
			".cline/data/settings/providers.json.1.tmp", ".cline/data/x", ".cline/plugins/x"},
	},
	"qwen": {
		reads: []string{".qwen/settings.json", ".qwen/.env"},
		keeps: []string{".qwen/projects/p/chats/x.jsonl", ".qwen/tmp/1/x", ".qwen/oauth_creds.json", ".qwen/usage_record.jsonl", ".qwen/.openai-logs-cleanup-1"},
		own:   []string{".qwen/history/1/HEAD", ".qwen/tmp/bin/rg", ".qwen/extension-store/state.json"},
		refused: []string{".qwen/settings.json", ".qwen/settings.json.tmp", ".qwen/.env", ".qwen/extensions/x/qwen-extension.json", ".qwen/skills/x/SKILL.md", ".qwen/trustedFolders.json",
			".qwen/commands/x.toml", ".qwen/agents/x.md", ".qwen/QWEN.md"},
	},
	"continue": {
		reads:   []string{".continue/config.yaml", ".continue/auth.json"},
		keeps:   []string{".continue/sessions/1.json", ".continue/logs/cn.log"},
		own:     []string{".continue/index/globalContext.json"},
		refused: []string{".continue/config.yaml", ".continue/auth.json", ".continue/permissions.yaml", ".continue/.env", ".continue/mcpServers/x.yaml", ".continue/rules/x.md", ".continue/config.ts"},
	},
	"crush": {
		reads:   []string{".config/crush/crush.json", ".local/share/crush/providers.json"},
		refused: []string{".config/crush/crush.json", ".local/share/crush/providers.json", ".local/share/crush/crush.json", ".crush/x"},
	},
	"amp": {
		reads:   []string{".config/amp/settings.json", ".local/share/amp/secrets.json"},
		refused: []string{".config/amp/settings.json", ".config/amp/plugins/x.ts", ".local/share/amp/secrets.json", ".amp/x", ".amp/bin/amp"},
	},
	"cursor": {
		reads:   []string{".cursor/mcp.json", ".config/cursor/auth.json", ".cursor/cli-config.json"},
		keeps:   []string{".cursor/chats/1/store.db", ".cursor/projects/p/x"},
		refused: []string{".cursor/mcp.json", ".cursor/hooks.json", ".cursor/cli-config.json", ".config/cursor/auth.json", ".cursor/projects/p/mcp-approvals.json", ".cursor/rules/x"},
	},
	"aider": {
		reads:   []string{".aider.conf.yml", ".aider/oauth-keys.env"},
		keeps:   []string{".aider/caches/model_prices.json", ".aider/analytics.json"},
		refused: []string{".aider.conf.yml", ".aider/oauth-keys.env", ".aider/x"},
	},
}

// L6 F3: an agent under its preset has its login and its transcripts, and cannot change
// what the next agent runs; what is hidden of the others stays so.
func TestAgentPresets(t *testing.T) {
	for agent, files := range agentHomes {
		for _, backend := range []string{"native", "bwrap"} {
			t.Run(agent+"/"+backend, func(t *testing.T) {
				testenv.Need(t, "userns", "bwrap")
				home, ws := toolHome(t)
				fillAgentHomes(t, home)
				p, err := policy.FromPreset(agent)
				if err != nil {
					t.Fatal(err)
				}
				checkAgent(t, p.With(policy.WithBackend(backend), policy.AllowRead(home)), agent, files, home, ws)
			})
		}
	}
}

// fillAgentHomes makes what every agent reads, and the files that it only changes.
func fillAgentHomes(t *testing.T, home string) {
	t.Helper()
	made := []string{".claude/.credentials.json", ".claude/history.jsonl", ".codex/auth.json", ".codex/.credentials.json", ".codex/log/x", ".codex/archived_sessions/x", ".codex/history.jsonl", ".claude/paste-cache/p", ".claude/debug/d", ".gemini/oauth_creds.json",
		".local/share/opencode/auth.json", ".aider/analytics.json", ".cursor/chats/x", ".cursor/projects/x", ".qwen/oauth_creds.json"}
	for _, files := range agentHomes {
		made = append(made, files.reads...)
	}
	for _, f := range made {
		p := filepath.Join(home, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("of the host\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func checkAgent(t *testing.T, p policy.Policy, agent string, files agentHome, home, ws string) {
	t.Helper()
	s := open(t, p, ws)
	write := `for f in ` + strings.Join(append(append([]string{}, files.keeps...), files.own...), " ") + `; do mkdir -p $(dirname $f); echo "by the agent" >> $f; done`
	r, err := s.Command(t.Context(), "sh", "-euc", `cd; cat `+strings.Join(files.reads, " ")+`; `+write).Capture()
	if err != nil || !r.Success() {
		t.Fatalf("%v: %s", err, brief(r))
	}
	for _, d := range r.Denied {
		t.Errorf("%v", d)
	}
	for _, f := range files.keeps {
		if !strings.Contains(hostText(home, f), "by the agent") {
			t.Errorf("%s is not the host's", f)
		}
	}
	for _, f := range files.own {
		if hostText(home, f) != "" {
			t.Errorf("%s reached the host", f)
		}
	}
	plant(t, s, home, files.refused)
	for other, o := range agentHomes {
		secret := map[string]string{"claude": ".claude/.credentials.json", "codex": ".codex/auth.json", "gemini": ".gemini/oauth_creds.json",
			"opencode": ".local/share/opencode/auth.json", "aider": ".aider/oauth-keys.env", "copilot": ".copilot/config.json", "cline": ".cline/data/settings/providers.json",
			"qwen": ".qwen/oauth_creds.json", "continue": ".continue/auth.json", "crush": ".local/share/crush/providers.json", "amp": ".local/share/amp/secrets.json",
			"cursor": ".config/cursor/auth.json"}[other]
		if other == agent || len(o.reads) == 0 {
			continue
		}
		if got := capture(t, s, "cat ~/"+secret); got.Success() || strings.Contains(string(got.Stdout), "of the host") {
			t.Errorf("%s can be read", secret)
		}
	}
}

// hostText is what a file of the home folder holds, empty if it is not there.
func hostText(home, file string) string {
	data, err := os.ReadFile(filepath.Join(home, file))
	if err != nil {
		return ""
	}
	return string(data)
}
