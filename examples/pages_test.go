package examples_test

import (
	"os"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/policy"
)

// systems are the tools, each with the options and functions that its page maps.
var systems = map[string][]string{
	"flemma": {"enabled", `"auto"`, `"required"`, "backend = NAME", "rw_paths", "policy.network", "allow_privileged", "bwrap.path", "extra_args",
		"urn:flemma:cwd", "urn:flemma:buffer:path", "$VAR", "${VAR:-default}", "opt.sandbox", "auto_approve", "auto_approve_sandboxed",
		"can_auto_approve_if_sandboxed", "sandbox:enable", "sandbox:disable", "sandbox:status", "resolve_config", "is_enabled", "get_policy",
		"wrap_command", "is_path_writable", "validate_backend", "detect_available_backend", "`register`", "unregister", "get_all", "count", "setup",
		"available", "set_enabled", "reset_enabled", "get_override"},
	"codefly": {"New()", "WithReadPaths", "WithWritePaths", "WithNetwork", "NetworkDeny", "NetworkOpen", "NetworkLoopback", "WithUnixSockets", "`Wrap`",
		"Backend()", "ErrNetworkLoopbackUnsupported", "`native`", "`bwrap`", "sandboxexec"},
	"clai": {"workspace_root", "/etc/ssh", "/etc/resolv.conf", "/run", "$HOME", "sandbox.network", "sessionBus", "extra_paths", "fs_request_grant",
		"list_pending_path_grant_requests", "submit_path_grant_decision", "GrantOrigin", "PathGranted", "PathGrantDenied", "SandboxUnavailable", "prompt"},
	"lmcli": {"enabled", "remapWorkspace", "remapWorkspacePath", "networking: none", "networking: host", "networking: user", "bindDirs", "persistDirs", "hosts",
		"HostPath", "ResolveWorkspace", "PrepareSandbox", "PreparedSandbox.Run", "PreparedSandbox.Cmd", "NewToolSandboxConfig", "DefaultHosts",
		"ToolSandboxConfig", "MountPoint", "NetworkNone", "NetworkHost", "NetworkUser"},
	"flow": {"`net: true`", "`net: false`", "write_paths", "read_paths", `"scrubbed"`, `"inherit"`, `"vars"`, "cwd", "~/", "resolve_layer", "Lightweight",
		"MacosSandboxExec", "LinuxLandlock", "wrap_command", "scrub_env", "build_macos_sbpl", "confine_path", "PathEscape", "audit_log_path"},
}

// Every option has its place on the page.
func TestPagesMapEveryOption(t *testing.T) {
	for name, options := range systems {
		page, err := os.ReadFile("../docs/coming-from/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, option := range options {
			if !strings.Contains(string(page), option) {
				t.Errorf("the page about %s does not mention %s", name, option)
			}
		}
	}
}

// Every policy is one that a user could keep as their own.
func TestPolicies(t *testing.T) {
	for name := range systems {
		file := name + "/policy.yaml"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := policy.Parse(file, text)
		if err != nil {
			t.Error(err)
			continue
		}
		p, ignored, err := policy.Merge(policy.Layered{Doc: doc, Layer: policy.LayerUser})
		if err != nil || len(ignored) > 0 || p.Validate() != nil {
			t.Errorf("%s: %v %v %v", file, err, ignored, p.Validate())
		}
	}
}
