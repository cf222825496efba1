// Package starter fits a project's first policy to what is in its folder. It looks
// at names, and into a few files for hosts and ports; it runs nothing, and takes no
// file's word for more than a suggestion that a person reads before trusting it.
package starter

import (
	"io"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Findings are what a folder told about itself.
type Findings struct {
	// Tools are the presets that fit, each with the files that say so, in the order
	// of [toolMarks].
	Tools []Tool
	// Agents are the agents whose files are in the folder.
	Agents []Tool
	// Variables are files with variables, which may hold secrets.
	Variables []string
	// Hosts are the registries that files name, beside those of the presets.
	// Doubtful are those that a person has to look at first: see [isPublic].
	Hosts, Doubtful []Host
	// Services are ports that a compose file publishes on this machine.
	Services []Service
	// Git is whether the folder is a repository.
	Git bool
}

// A Tool is a preset and the files because of which it fits.
type Tool struct {
	Preset string
	Files  []string
}

// A Host is a host and the file that names it.
type Host struct{ Name, File string }

// A Service is a port of the host's loopback and the file that publishes it.
type Service struct {
	Port int
	File string
}

// toolMarks are the files that tell a toolchain; * stands for any part of a name.
var toolMarks = []Tool{
	{"go", []string{"go.mod", "go.work"}},
	{"node", []string{"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"}},
	{"python", []string{"pyproject.toml", "requirements*.txt", "setup.py", "setup.cfg", "Pipfile", "uv.lock", "poetry.lock"}},
	{"rust", []string{"Cargo.toml", "Cargo.lock"}},
	{"java", []string{"pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"}},
}

// agentMarks are the files that tell an agent.
var agentMarks = []Tool{
	{"claude", []string{".claude", "CLAUDE.md", ".mcp.json"}},
	{"codex", []string{".codex"}},
	{"gemini", []string{".gemini", "GEMINI.md"}},
	{"opencode", []string{".opencode", "opencode.json", "opencode.jsonc"}},
	{"aider", []string{".aider*"}},
}

// shared are the files of variables that are made to be read by everybody.
var shared = []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"}

// skipped are folders of other people's files.
var skipped = []string{"node_modules", "vendor", "target", "build", "dist", "venv", "testdata"}

// maxFolders bounds how many folders are looked into, maxRead how much of a file.
const (
	maxFolders = 200
	maxRead    = 1 << 20
)

// Inspect looks at a folder and at those directly in it, as the parts of a larger
// project have folders of their own.
func Inspect(dir fs.FS) (Findings, error) {
	names, folders, err := list(dir, ".")
	if err != nil {
		return Findings{}, err
	}
	f := Findings{Git: slices.Contains(names, ".git")}
	for i, folder := range folders {
		if i == maxFolders {
			break
		}
		if strings.HasPrefix(folder, ".") || slices.Contains(skipped, folder) {
			continue
		}
		below, _, err := list(dir, folder)
		if err != nil {
			continue // a folder that cannot be listed says nothing
		}
		for _, name := range below {
			names = append(names, path.Join(folder, name))
		}
	}
	f.Tools, f.Agents = marked(names, toolMarks), marked(names, agentMarks)
	f.Variables = variables(names)
	for _, h := range hosts(dir, names) {
		if isPublic(h.Name) {
			f.Hosts = append(f.Hosts, h)
		} else {
			f.Doubtful = append(f.Doubtful, h)
		}
	}
	f.Services = services(dir, names)
	return f, nil
}

// list returns the names in a folder, and those of them that are folders.
func list(dir fs.FS, at string) (names, folders []string, err error) {
	entries, err := fs.ReadDir(dir, at)
	for _, e := range entries {
		names = append(names, e.Name())
		if e.IsDir() {
			folders = append(folders, e.Name())
		}
	}
	return names, folders, err
}

// marked returns the tools of which there are files.
func marked(names []string, marks []Tool) []Tool {
	var found []Tool
	for _, m := range marks {
		t := Tool{Preset: m.Preset}
		for _, name := range names {
			if slices.ContainsFunc(m.Files, func(pattern string) bool { ok, _ := path.Match(pattern, path.Base(name)); return ok }) {
				t.Files = append(t.Files, name)
			}
		}
		if len(t.Files) > 0 {
			found = append(found, t)
		}
	}
	return found
}

// variables are the files of variables. One with a name that a policy would not take
// literally is left to the preset secrets, which looks for such files itself.
func variables(names []string) []string {
	var found []string
	for _, name := range names {
		base := path.Base(name)
		if (base == ".env" || strings.HasPrefix(base, ".env.")) && !slices.Contains(shared, base) && isPlain(name, "_/ @+,") {
			found = append(found, name)
		}
	}
	return found
}

// hostMarks find the registries that a file names. The expressions are compiled when
// they are needed: every start of cloche would pay for them otherwise.
var hostMarks = []struct{ file, lines string }{
	{".npmrc", `(?m)^\s*(?:@[\w.-]+:)?registry\s*=\s*"?(https?://\S+?)"?\s*$`},
	{"requirements*.txt", `(?m)^\s*(?:--index-url|--extra-index-url|-i)[ =]+(https?://\S+)`},
	{"pom.xml", `(?s)<(?:repository|pluginRepository)>.{0,500}?<url>\s*(https?://[^<\s]+)`},
}

// known are the hosts that the presets allow already.
var known = []string{"registry.npmjs.org", "registry.yarnpkg.com", "pypi.org", "files.pythonhosted.org", "repo.maven.apache.org", "repo1.maven.org"}

func hosts(dir fs.FS, names []string) []Host {
	var found []Host
	for _, name := range names {
		for _, m := range hostMarks {
			if ok, _ := path.Match(m.file, path.Base(name)); !ok {
				continue
			}
			for _, match := range regexp.MustCompile(m.lines).FindAllStringSubmatch(read(dir, name), -1) {
				found = appendHost(found, match[1], name)
			}
		}
	}
	return found
}

// appendHost adds the host of an address with its port, if it is new. Passwords in
// the address stay behind.
func appendHost(found []Host, address, file string) []Host {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || slices.Contains(known, u.Hostname()) || !isPlain(u.Hostname(), "") {
		return found
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	h := Host{u.Hostname() + ":" + port, file}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n >= 1<<16 {
		return found
	}
	if slices.ContainsFunc(found, func(o Host) bool { return o.Name == h.Name }) {
		return found
	}
	return append(found, h)
}

// privateSuffixes end the names that public name servers do not know: they lead to
// machines nearby, or to the metadata service of a cloud.
var privateSuffixes = []string{"localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private", "home.arpa", "test", "invalid", "onion", "nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me"}

// isPublic reports whether a host with its port is a name that could be a
// registry's. The files of a project may be a stranger's: an address, and a name
// without a public suffix, may be the metadata service of a cloud or a machine of
// the network around.
func isPublic(hostPort string) bool {
	host, _, _ := strings.Cut(strings.ToLower(hostPort), ":")
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	// A name whose last part begins with a digit is read as an address by some.
	if last == host || last == "" || last[0] >= '0' && last[0] <= '9' {
		return false
	}
	return !slices.ContainsFunc(privateSuffixes, func(s string) bool { return strings.HasSuffix("."+host, "."+s) })
}

// isPlain reports whether a text is made of letters, digits, dots, hyphens and the
// other bytes, so that it means itself wherever a policy has it.
func isPlain(s, others string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && r != '.' && r != '-' && !strings.ContainsRune(others, r)
	})
}

// published is one entry of a list of ports: "5432:5432", 127.0.0.1:8080:80/tcp.
const published = `(?m)^\s*-\s*["']?(?:[\d.]+:)?(\d{1,5}):\d{1,5}(?:/tcp)?["']?\s*(?:#.*)?$`

func services(dir fs.FS, names []string) []Service {
	var found []Service
	for _, name := range names {
		switch path.Base(name) {
		case "docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml":
		default:
			continue
		}
		for _, match := range regexp.MustCompile(published).FindAllStringSubmatch(read(dir, name), -1) {
			port, err := strconv.Atoi(match[1])
			if err == nil && port > 0 && port < 1<<16 && !slices.ContainsFunc(found, func(s Service) bool { return s.Port == port }) {
				found = append(found, Service{port, name})
			}
		}
	}
	return found
}

// read returns the beginning of a regular file, empty if it cannot be read.
func read(dir fs.FS, name string) string {
	info, err := fs.Stat(dir, name)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := dir.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return ""
	}
	return string(data)
}
