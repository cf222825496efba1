package agenttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

// A Start is how an agent is started so that it takes the prompt "go", works without
// questions, and ends.
type Start struct {
	// Program is its path, with node before it if it is a script.
	Program, Args []string
	// Env are variables that it needs beside the usual ones, as in [os.Environ].
	Env []string
}

// An agent is a program below node_modules, and how it finds the model.
type agent struct {
	// program needs node if it is a script.
	program string
	args    []string
	env     []string
	// files are settings below the home folder. In all texts {url} is the model's, and {home} the folder.
	files map[string]string
}

var known = map[string]agent{
	"claude": {
		program: "@anthropic-ai/claude-code-linux-x64/claude",
		args:    []string{"-p", "go", "--allowedTools", "Bash"},
		env:     []string{"ANTHROPIC_BASE_URL={url}", "ANTHROPIC_API_KEY=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
	},
	"codex": {
		program: "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
		args:    []string{"exec", "--skip-git-repo-check", "go"},
		env:     []string{"SCRIPTED_KEY=scripted"},
		files: map[string]string{".codex/config.toml": `model = "gpt-5.1-codex"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
`},
	},
	"gemini": {
		program: "@google/gemini-cli/bundle/gemini.js",
		args:    []string{"-p", "go", "--yolo", "--skip-trust"},
		env:     []string{"GEMINI_API_KEY=scripted", "GOOGLE_GEMINI_BASE_URL={url}"},
		files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}
`},
	},
	"opencode": {
		program: "opencode-linux-x64/bin/opencode",
		args:    []string{"run", "go"},
		// It would wait for lists that it can do without.
		env: []string{"OPENCODE_DISABLE_MODELS_FETCH=true"},
		files: map[string]string{".config/opencode/opencode.json": `{"$schema":"https://opencode.ai/config.json","share":"disabled","model":"scripted/m","small_model":"scripted/m",
"permission":{"bash":"allow"},"provider":{"scripted":{"npm":"@ai-sdk/openai-compatible","name":"scripted",
"options":{"baseURL":"{url}/v1","apiKey":"scripted"},"models":{"m":{"name":"m","tool_call":true,"limit":{"context":100000,"output":1000}}}}}}
`},
	},
	"copilot": {
		program: "@github/copilot-linux-x64/copilot",
		args:    []string{"-p", "go", "--allow-all-tools", "--allow-all-paths"},
		files: map[string]string{".copilot/installed-plugins/.keep": "", ".copilot/config.json": `{"firstLaunchAt":"2026-01-01T00:00:00.000Z"}
`},
		env: []string{"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL={url}/v1", "COPILOT_MODEL=scripted", "COPILOT_PROVIDER_API_KEY=scripted"},
	},
	"cline": {
		program: "@cline/cli-linux-x64/bin/cline",
		args:    []string{"--json", "go do the thing"},
		files: map[string]string{".cline/data/settings/providers.json": `{"version":1,"lastUsedProvider":"openai-compatible","modes":{},"providers":{"openai-compatible":{"settings":{
"provider":"openai-compatible","apiKey":"scripted","model":"scripted","baseUrl":"{url}/v1"},"updatedAt":"2026-01-01T00:00:00.000Z","tokenSource":"manual"}}}
`},
	},
	"qwen": {
		program: "@qwen-code/qwen-code/cli.js",
		args:    []string{"-p", "go", "--yolo"},
		env:     []string{"OPENAI_API_KEY=scripted", "OPENAI_BASE_URL={url}/v1", "OPENAI_MODEL=scripted"},
		files: map[string]string{".qwen/settings.json": `{"security":{"auth":{"selectedType":"openai"}},"privacy":{"usageStatisticsEnabled":false},"$version":4}
`, ".qwen/extensions/extension-enablement.json": "{}\n", ".qwen/skills/.keep": "", ".qwen/output-language.md": "<!-- qwen-code:llm-output-language: auto -->\n"},
	},
	"continue": {
		program: "@continuedev/cli/dist/cn.js",
		args:    []string{"-p", "--auto", "--config", "{home}/.continue/config.yaml", "go do it"},
		files: map[string]string{".continue/config.yaml": `name: scripted
version: 0.0.1
schema: v1
models:
  - {name: scripted, provider: openai, model: gpt-4o, apiKey: scripted, apiBase: {url}/v1, roles: [chat], capabilities: [tool_use]}
`, ".continue/permissions.yaml": "allow: []\nask: []\nexclude: []\n"},
	},
}

// Prepare writes the settings with which the agent uses the model into the home folder,
// and returns how it is started. It skips the test where the agents are not installed.
func Prepare(t testing.TB, name, home string, m *Model) Start {
	t.Helper()
	testenv.Need(t, "agents")
	s, err := Settings(name, home, m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Settings is Prepare without a test.
func Settings(name, home string, m *Model) (Start, error) {
	a, ok := known[name]
	if !ok {
		return Start{}, fmt.Errorf("there is no agent %s", name)
	}
	if err := checkVersions(); err != nil {
		return Start{}, err
	}
	fill := strings.NewReplacer("{url}", m.URL, "{home}", home).Replace
	for file, text := range a.files {
		path := filepath.Join(home, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return Start{}, err
		}
		if err := os.WriteFile(path, []byte(fill(text)), 0o600); err != nil {
			return Start{}, err
		}
	}
	s := Start{Program: a.start()}
	for _, arg := range a.args {
		s.Args = append(s.Args, fill(arg))
	}
	for _, v := range a.env {
		s.Env = append(s.Env, fill(v))
	}
	return s, nil
}

// start is how its program is started.
func (a *agent) start() []string {
	program := filepath.Join(testenv.AgentsDir, "node_modules", a.program)
	if strings.HasSuffix(a.program, ".js") {
		return []string{"node", program}
	}
	return []string{program}
}

// checkVersions fails where other versions are installed than this repository has on
// its list.
func checkVersions() error {
	have, err := os.ReadFile(filepath.Join(testenv.AgentsDir, "package.json"))
	if err != nil {
		return err
	}
	var installed struct{ Dependencies map[string]string }
	if err := json.Unmarshal(have, &installed); err != nil {
		return fmt.Errorf("package.json of the agents: %w", err)
	}
	for name, want := range Versions() {
		if got := installed.Dependencies[name]; got != want {
			return fmt.Errorf("%s is installed as %q, and %s is wanted: run scripts/agents", name, got, want)
		}
	}
	return nil
}
