package doclint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
)

const modulePath = "github.com/cloche-dev/cloche"

// allowedImports is the architecture: what each package may import of this
// module, and of others. Imports point down only. A package that is not listed
// fails the test, so that a new one is a decision.
var allowedImports = map[string][]string{
	// What is wanted, and what happened: nothing of ours.
	"internal/spelling": {},
	"policy":            {"internal/pathx", "internal/spelling", "go.yaml.in/yaml/v3"},
	// It reads the comments of the presets, too.
	"policy/internal/genprotection": {"policy", "go.yaml.in/yaml/v3"},
	"audit":                         {"internal/redact", "golang.org/x/sys/unix"},
	"internal/redact":               {},
	"internal/pathx":                {"github.com/bmatcuk/doublestar/v4"},
	"internal/seccomp":              {},
	"internal/landlockabi":          {},
	"internal/initprog":             {},
	// What the machine is, what will be enforced, and how.
	// It reads what git tracks, to hide no file in vain.
	"internal/gitindex": {},
	// The file tree of the machine, live or recorded.
	"internal/hostfs":    {"golang.org/x/sys/unix"},
	"internal/wellknown": {},
	"internal/cause":     {},
	"host":               {"internal/hostfs"},
	"internal/machine":   {"internal/wellknown", "host", "internal/pathx", "internal/ownfile", "golang.org/x/sys/unix", "golang.org/x/sys/windows", "internal/hostfs", "internal/cause"},
	"plan":               {"internal/show", "internal/hostfs", "internal/wellknown", "policy", "host", "internal/pathx"},
	// What a plan allows: every decision is made here.
	"internal/judge": {"internal/hostfs", "policy", "plan", "internal/pathx", "internal/show", "internal/wellknown"},
	"internal/show":  {},
	// A launch may carry a program of system calls, which is plain data.
	"internal/builtin": {"policy", "internal/sysprog"},
	"backend":          {"policy", "host", "plan", "internal/builtin"},
	// The parts behind the library.
	"internal/config":     {"policy", "internal/pathx", "internal/ownfile"},
	"internal/ownfile":    {"github.com/gofrs/flock"},
	"approval":            {},
	"internal/hook":       {"grant"},
	"internal/desksocket": {"grant", "golang.org/x/sys/unix"},
	"internal/busaddress": {},
	// A notification that a request waits.
	"internal/sessionbus": {"internal/busaddress"},
	"internal/desktop":    {"grant", "internal/busaddress", "internal/sessionbus"},
	// Questions on a terminal: of the supervisor's, and of the command's.
	"internal/console":    {"golang.org/x/sys/unix"},
	"internal/learn":      {"internal/judge", "policy", "plan", "internal/pathx", "internal/policyfile"},
	"internal/policyfile": {},
	"internal/starter":    {"internal/policyfile"},
	"internal/importer":   {"policy", "internal/policyfile", "internal/pathx", "github.com/pelletier/go-toml/v2"},
	// It edits the settings of agents, and keeps what they were.
	"internal/agents": {"internal/ownfile"},
	// Values of secrets, and what commands have instead.
	"internal/secret": {"policy", "internal/sessionbus"},
	// What commands changed aside, and how it is applied.
	"internal/review": {"internal/ownfile", "internal/pathx", "golang.org/x/sys/unix"},
	// It lets the processes of an agent share a session, and knows nothing of sessions.
	"internal/keeper": {"internal/supervise", "golang.org/x/sys/unix"},
	"internal/toggle": {"policy", "internal/ownfile", "golang.org/x/sys/unix"},
	"grant":           {"policy", "internal/pathx", "internal/safeopen", "internal/ownfile"},
	// Its steps name the rule behind them, a policy.Origin.
	"internal/umask":      {"golang.org/x/sys/unix"},
	"internal/sysprog":    {"policy", "internal/umask", "golang.org/x/sys/unix"},
	"internal/runoption":  {"policy"},
	"internal/denials":    {"internal/judge", "internal/show", "policy", "plan", "internal/learn", "internal/pathx", "internal/runoption"},
	"internal/notify":     {"internal/judge", "policy", "plan", "internal/denials", "internal/gitguard", "internal/netns", "internal/pathx", "internal/seccomp", "internal/umask", "golang.org/x/sys/unix"},
	"internal/gitguard":   {"plan", "policy", "internal/pathx", "golang.org/x/sys/unix"},
	"internal/safeopen":   {"internal/pathx", "golang.org/x/sys/unix"},
	"internal/treewatch":  {"host", "internal/hostfs", "golang.org/x/sys/unix"},
	"internal/runlog":     {"grant", "audit", "plan", "policy", "backend", "internal/supervise"},
	"internal/netservice": {"internal/inspection", "internal/judge", "plan", "backend", "internal/denials", "internal/egress", "internal/network", "internal/runlog", "internal/supervise"},
	"internal/asking":     {"internal/judge", "grant", "plan", "policy", "internal/pathx"},
	"internal/search":     {"internal/gitindex", "internal/pathx", "internal/ownfile", "internal/treewatch", "golang.org/x/sys/unix", "internal/hostfs"},
	"internal/resolve":    {"internal/busaddress", "internal/judge", "internal/wellknown", "policy", "host", "plan", "internal/pathx", "internal/search", "internal/hostfs"},
	// The proxy of the session bus, a process of its own.
	"internal/bus":               {"plan", "golang.org/x/sys/unix"},
	"internal/backends/bwrap":    {"internal/hostfs", "policy", "host", "plan", "backend", "internal/builtin", "internal/backends/program", "internal/initprog", "internal/landlockabi", "internal/pathx", "internal/seccomp", "internal/sysprog", "internal/cause"},
	"internal/backends/none":     {"host", "plan", "backend"},
	"internal/backends/native":   {"internal/hostfs", "internal/wellknown", "internal/machine", "policy", "host", "plan", "backend", "internal/builtin", "internal/backends/program", "internal/initprog", "internal/landlockabi", "internal/pathx", "internal/seccomp", "internal/sysprog", "internal/cause"},
	"internal/backends/landlock": {"policy", "host", "plan", "backend", "internal/builtin", "internal/backends/program", "internal/initprog", "internal/landlockabi", "internal/pathx", "internal/seccomp", "internal/sysprog", "internal/hostfs", "internal/cause"},
	"internal/backends/seatbelt": {"internal/hostfs", "policy", "host", "plan", "backend", "internal/backends/program", "internal/builtin", "internal/pathx", "internal/cause"},
	// What backends have in common, above all those that compile to system calls.
	"internal/backends/program": {"internal/hostfs", "policy", "host", "plan", "backend", "internal/builtin", "internal/initprog", "internal/landlockabi", "internal/pathx", "internal/seccomp", "internal/sysprog"},
	"internal/supervise":        {"internal/judge", "policy", "host", "internal/hostfs", "plan", "backend", "internal/builtin", "internal/console", "internal/initprog", "internal/notify", "internal/sysprog", "internal/umask", "golang.org/x/sys/unix", "golang.org/x/term", "github.com/creack/pty"},
	// Sockets and links of a sandbox's network namespace, and what serves it.
	// What is known of a look inside TLS where net/http is not linked.
	"internal/inspection": {},
	"internal/egress":     {"internal/inspection", "internal/judge", "internal/show", "policy", "plan", "internal/denials", "internal/runoption", "golang.org/x/net/dns/dnsmessage", "golang.org/x/net/http2/hpack"},
	// It ends TLS, in a program of its own. Of the rules it knows only how servers read requests.
	"internal/inspect": {"internal/inspection", "internal/judge", "internal/show"},
	"internal/netns":   {"policy", "host", "internal/sysprog", "golang.org/x/sys/unix", "internal/cause"},
	"internal/usernet": {"golang.org/x/sys/unix", "gvisor.dev/gvisor/pkg/buffer", "gvisor.dev/gvisor/pkg/tcpip", "gvisor.dev/gvisor/pkg/tcpip/adapters/gonet", "gvisor.dev/gvisor/pkg/tcpip/checksum", "gvisor.dev/gvisor/pkg/tcpip/header", "gvisor.dev/gvisor/pkg/tcpip/link/channel", "gvisor.dev/gvisor/pkg/tcpip/network/ipv4", "gvisor.dev/gvisor/pkg/tcpip/network/ipv6", "gvisor.dev/gvisor/pkg/tcpip/stack", "gvisor.dev/gvisor/pkg/tcpip/transport/icmp", "gvisor.dev/gvisor/pkg/tcpip/transport/tcp", "gvisor.dev/gvisor/pkg/tcpip/transport/udp", "gvisor.dev/gvisor/pkg/waiter"},
	"internal/network": {"internal/judge", "internal/wellknown", "policy", "plan", "internal/egress", "internal/netns", "internal/usernet", "golang.org/x/sys/unix"},
	// Tries the rules of a plan from inside, and judges from outside.
	"internal/verify": {"internal/judge", "internal/hostfs", "policy", "host", "plan", "backend", "internal/gitguard", "internal/pathx", "internal/prober", "golang.org/x/sys/unix"},
	"internal/prober": {"golang.org/x/sys/unix"},
	// It wires them together, from the policy to the running command.
	"internal/engine": {"internal/egress", "internal/inspection", "internal/secret", "internal/judge", "internal/wellknown", "internal/redact", "internal/machine", "policy", "host", "plan", "backend", "internal/builtin", "grant", "internal/asking", "internal/bus", "internal/gitguard", "internal/netns", "internal/netservice", "internal/pathx", "internal/review", "internal/runlog", "internal/resolve", "internal/search", "internal/supervise", "internal/sysprog", "internal/treewatch", "golang.org/x/sys/unix", "internal/backends/bwrap", "internal/backends/landlock", "internal/backends/native", "internal/backends/none", "internal/backends/seatbelt", "internal/hostfs", "internal/cause"},
	// The library is its front: sessions and commands, what may be done, and what was refused.
	"": {"internal/inspection", "internal/judge", "internal/show", "internal/hook", "policy", "host", "plan", "backend", "internal/builtin", "audit", "grant", "internal/engine", "internal/asking", "internal/backends/none", "internal/backends/seatbelt", "internal/denials", "internal/gitguard", "internal/netservice", "internal/pathx", "internal/prober", "internal/resolve", "internal/runlog", "internal/runoption", "internal/safeopen", "internal/supervise", "internal/verify", "internal/hostfs"},
	// Front ends see the library, and neither resolve nor backends.
	"internal/cli":     {"internal/agents", "internal/gitguard", "internal/keeper", "internal/pathx", "internal/judge", "internal/denials", "internal/redact", "internal/runlog", "internal/hook", "internal/safeopen", "internal/machine", "", "policy", "host", "plan", "backend", "audit", "grant", "internal/config", "internal/console", "internal/desksocket", "internal/desktop", "internal/importer", "internal/learn", "internal/policyfile", "internal/runoption", "internal/spelling", "internal/starter", "internal/toggle", "internal/review", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys/unix", "golang.org/x/term", "internal/hostfs"},
	"internal/cli/gen": {"internal/cli", "github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/cloche":       {"internal/cli"},
	// The MCP server is a program of its own: its library links an HTTP server.
	"internal/mcpserver": {"internal/denials", "internal/show", "internal/safeopen", "", "policy", "plan", "grant", "internal/cli", "internal/desksocket", "internal/desktop", "github.com/google/jsonschema-go/jsonschema", "github.com/modelcontextprotocol/go-sdk/mcp", "github.com/modelcontextprotocol/go-sdk/jsonrpc"},
	"https":              {"internal/inspect", "internal/inspection"},
	"cmd/cloche-https":   {"https", "internal/cli"},
	"cmd/cloche-mcp":     {"https", "internal/cli", "internal/mcpserver"},
	// The measuring program beside the product.
	"bench":                 {"internal/agenttest", "internal/testenv", "internal/hostfs", "internal/wellknown", "internal/machine", "", "policy", "host", "plan", "backend", "internal/netns", "internal/network", "bench/internal/report", "golang.org/x/sys/unix"},
	"bench/internal/report": {},
	// Runs the suites of other projects inside and outside.
	"compat": {},
	// Programs that show how others use the library: on what is public alone.
	"examples":         {},
	"examples/flemma":  {"audit", "", "policy", "approval", "go.yaml.in/yaml/v3"},
	"examples/codefly": {"", "policy"},
	"examples/clai":    {"", "policy", "plan", "grant"},
	"examples/lmcli":   {"", "policy", "go.yaml.in/yaml/v3"},
	"examples/flow":    {"", "policy", "audit", "backend"},
	// What is inside the programs of a release.
	"packaging/inventory": {},
	// Help for tests, linked into no product.
	"backend/backendtest":          {"internal/prober", "internal/resolve", "internal/machine", "", "policy", "host", "backend", "golang.org/x/sys/unix"},
	"internal/testenv":             {"internal/machine", "host"},
	"internal/testnet":             {"internal/testenv", "golang.org/x/net/dns/dnsmessage", "golang.org/x/net/quic"},
	"internal/testlog":             {"audit"},
	"internal/agenttest":           {"internal/testenv"},
	"internal/clients":             {},
	"internal/gitguard/gitscripts": {},
	"internal/testbus":             {"internal/testenv"},
	"internal/exploits":            {},
	"internal/difftest":            {},
	"internal/apitest":             {},
	"internal/doclint":             {},
	"internal/goldentest":          {"policy", "host", "github.com/google/go-cmp/cmp", "internal/hostfs"},
}

// notInProduct are packages that the command must not link: help for tests, and
// what makes a program start late.
var notInProduct = []string{"testing", "github.com/google/jsonschema-go/jsonschema", "github.com/google/go-cmp/cmp", "net/http",
	"crypto/tls", "crypto/x509", "encoding/gob", "encoding/xml", "go/parser", "html/template", "os/user"}

type listedPackage struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			for _, p := range listPackages(t, system, "./...") {
				checkImports(t, p)
			}
		})
	}
}

func checkImports(t *testing.T, p listedPackage) {
	t.Helper()
	name := ownName(p.ImportPath)
	allowed, listed := allowedImports[name]
	if !listed {
		t.Errorf("package %q is not in the table of allowed imports", name)
		return
	}
	for _, imported := range p.Imports {
		if inStandardLibrary(imported) {
			continue
		}
		if !slices.Contains(allowed, ownName(imported)) {
			t.Errorf("package %q must not import %q", name, ownName(imported))
		}
	}
}

// ownName shortens the path of a package of this module; the root is "".
func ownName(path string) string {
	if path == modulePath {
		return ""
	}
	return strings.TrimPrefix(path, modulePath+"/")
}

func inStandardLibrary(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestProductLinksNoTestHelp(t *testing.T) {
	for _, p := range listPackages(t, "linux", "-deps", "./cmd/cloche") {
		if slices.Contains(notInProduct, p.ImportPath) {
			t.Errorf("cmd/cloche links %q", p.ImportPath)
		}
	}
}

// goTool is the go command, as the user that may run it.
func goTool(t *testing.T) string {
	t.Helper()
	testenv.Need(t, "go")
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// A user without a home folder has no module cache, and go can do nothing.
	if out, err := exec.Command(tool, "list", "-m").CombinedOutput(); err != nil {
		if os.Getuid() == 0 || os.Getenv("CI") != "" {
			t.Fatalf("the go tool does not work: %v: %s", err, out)
		}
		t.Skipf("needs a go tool that works: %v: %s", err, out)
	}
	return tool
}

func listPackages(t *testing.T, system string, args ...string) []listedPackage {
	t.Helper()
	tool := goTool(t)
	cmd := exec.Command(tool, append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []listedPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
