// Package starter writes a project's first policy, based on the content of its folder.
// It reads names, and in a few files hosts and ports. It runs nothing. What it finds is
// only a suggestion, which a person reads before trusting it.
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

// Findings are what a folder says about a project.
type Findings struct {
	// Tools are the presets that fit, each with the files that suggest it, in the order of
	// [toolMarks].
	Tools []Tool
	// Agents are the agents that have files in the folder.
	Agents []Tool
	// Variables are .env files, which may contain secrets.
	Variables []string
	// Hosts are the registries that files name, except those of the presets. Doubtful are
	// hosts that a person has to check first: see [isPublic].
	Hosts, Doubtful []Host
	// Services are ports that a compose file publishes on this machine.
	Services []Service
	// Git says whether the folder is a git repository.
	Git bool
}

// A Tool is a preset and the files that suggest it.
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

// toolMarks are the files by which a toolchain is recognized. * matches any part of a
// name.
var toolMarks = []Tool{
	{"go", []string{"go.mod", "go.work"}},
	{"node", []string{"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"}},
	{"python", []string{"pyproject.toml", "requirements*.txt", "setup.py", "setup.cfg", "Pipfile", "uv.lock", "poetry.lock"}},
	{"rust", []string{"Cargo.toml", "Cargo.lock"}},
	{"java", []string{"pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"}},
}

// agentMarks are the files by which an agent is recognized.
var agentMarks = []Tool{
	{"claude", []string{".claude", "CLAUDE.md", ".mcp.json"}},
	{"codex", []string{".codex"}},
	{"gemini", []string{".gemini", "GEMINI.md"}},
	{"opencode", []string{".opencode", "opencode.json", "opencode.jsonc"}},
	{"aider", []string{".aider*"}},
	{"cline", []string{".cline", ".clinerules"}},
	{"qwen", []string{".qwen", "QWEN.md"}},
	{"continue", []string{".continue"}},
	{"crush", []string{".crush", "crush.json", ".crush.json", "CRUSH.md"}},
	{"cursor", []string{".cursor", ".cursorrules"}},
	{"amp", []string{".amp"}},
}

// shared are names of .env files that are made to be shared.
var shared = []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"}

// skipped are folders that contain files of others, or generated ones.
var skipped = []string{"node_modules", "vendor", "target", "build", "dist", "venv", "testdata"}

// maxFolders bounds how many folders are read, and maxRead how much of a file.
const (
	maxFolders = 200
	maxRead    = 1 << 20
)

// Inspect reads a folder and the folders directly in it, because the parts of a larger
// project have their own folders.
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
			continue // skip a folder that cannot be listed
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

// marked returns the tools that have files among the names.
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

// variables returns the .env files. A file with special characters in its name is left
// out: the preset secrets finds it by itself.
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
// they are needed, so that they do not slow down every start of cloche.
var hostMarks = []struct{ file, lines string }{
	{".npmrc", `(?m)^\s*(?:@[\w.-]+:)?registry\s*=\s*"?(https?://\S+?)"?\s*$`},
	{"requirements*.txt", `(?m)^\s*(?:--index-url|--extra-index-url|-i)[ =]+(https?://\S+)`},
	{"pom.xml", `(?s)<(?:repository|pluginRepository)>.{0,500}?<url>\s*(https?://[^<\s]+)`},
}

// known are the hosts that the presets already allow.
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

// appendHost adds the host and port of an address, if they are new. It drops a password
// in the address.
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

// privateSuffixes are endings of names that public name servers do not know. Such names
// lead to machines in the local network, or to the metadata service of a cloud.
var privateSuffixes = []string{"localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private", "home.arpa", "test", "invalid", "onion", "nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me"}

// isPublic reports whether a host with its port may be a public registry. The files of
// a project may come from a stranger: an address, or a name without a public suffix,
// may be the metadata service of a cloud or a machine in the local network.
func isPublic(hostPort string) bool {
	host, _, _ := strings.Cut(strings.ToLower(hostPort), ":")
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	// Some programs read a name as an address if its last part begins with a digit.
	if last == host || last == "" || last[0] >= '0' && last[0] <= '9' {
		return false
	}
	return !slices.ContainsFunc(privateSuffixes, func(s string) bool { return strings.HasSuffix("."+host, "."+s) })
}

// isPlain reports whether a text contains only letters, digits, dots, hyphens and the
// characters in others, so that it has no special meaning in a policy.
func isPlain(s, others string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && r != '.' && r != '-' && !strings.ContainsRune(others, r)
	})
}

// published matches one entry of a list of ports: "5432:5432", 127.0.0.1:8080:80/tcp.
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

// read returns the beginning of a regular file, or "" if it cannot be read.
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
