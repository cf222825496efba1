package apitest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// manyPackages is how many a large project installs.
const manyPackages = 350

// An npmPackage is a package of the registry, and its entry of package-lock.json.
type npmPackage struct {
	at    string // where it is installed
	name  string
	files map[string]string

	Version          string            `json:"version"`
	Resolved         string            `json:"resolved"`
	Integrity        string            `json:"integrity"`
	Dependencies     map[string]string `json:"dependencies,omitempty"`
	Bin              map[string]string `json:"bin,omitempty"`
	HasInstallScript bool              `json:"hasInstallScript,omitempty"`
}

// npmProject makes a project with that many packages, as projects have them: with scopes,
// programs, scripts that run when they are installed, and versions that are nested in
// others. A registry on the host's loopback has them.
func npmProject(t *testing.T, ws string, count int) []string {
	t.Helper()
	packages := npmTree(count)
	tarballs := map[string][]byte{}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, ok := tarballs[r.URL.Path]; ok {
			_, _ = w.Write(data)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(r.URL.Path, "/-/npm/v1/security/") {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte("{}")) // no package has a known hole
	}))
	t.Cleanup(registry.Close)
	own, scripts := map[string]string{}, map[string]bool{}
	locked := map[string]any{"": map[string]any{"name": "app", "version": "1.0.0", "dependencies": own}}
	for _, p := range packages {
		file := fmt.Sprintf("/%s/-/%s-%s.tgz", p.name, path.Base(p.name), p.Version)
		data := p.tarball(t)
		sum := sha512.Sum512(data)
		tarballs[file] = data
		p.Resolved, p.Integrity = registry.URL+file, "sha512-"+base64.StdEncoding.EncodeToString(sum[:])
		locked[p.at] = p
		if p.at == "node_modules/"+p.name {
			own[p.name] = p.Version
		}
		if p.HasInstallScript {
			scripts[p.name] = true
		}
	}
	app := map[string]any{"name": "app", "version": "1.0.0", "dependencies": own, "allowScripts": scripts, "scripts": map[string]string{"test": "node test.js && first"}}
	lock := map[string]any{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": locked}
	files := map[string]string{
		"package.json": jsonText(t, app), "package-lock.json": jsonText(t, lock), ".npmrc": "registry=" + registry.URL + "\n",
		"test.js": `const names = Object.keys(require("./package.json").dependencies)
for (const name of names) if (require(name) !== name) throw name
const {existsSync} = require("fs")
if (!existsSync("node_modules/p0/installed") || !existsSync("node_modules/p0/node_modules/@types/t0/index.js")) throw "p0"
`,
	}
	for name, text := range files {
		file := filepath.Join(ws, "app", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(registry.URL, "http://"), ":")
	return []string{"--forward", port}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// npmTree is the tree of packages. Every tenth has a program and a version of its own
// of another package, and a few have a script that runs when they are installed.
func npmTree(count int) []*npmPackage {
	var tree []*npmPackage
	add := func(below, name, version string) *npmPackage {
		p := &npmPackage{at: below + "node_modules/" + name, name: name, Version: version}
		p.files = map[string]string{
			"index.js": fmt.Sprintf("module.exports = %q\n", name), "lib/deep/er/a.js": "module.exports = 1\n", "lib/b.d.ts": "export {}\n", "README.md": name + "\n",
			// Names that are protected elsewhere.
			".vscode/settings.json": "{}\n", ".husky/pre-commit": "true\n", "hooks/pre-commit": "true\n", "config": "x\n", ".eslintrc.js": "module.exports = {}\n", ".github/workflows/ci.yml": "on: push\n",
		}
		tree = append(tree, p)
		return p
	}
	for i := 0; len(tree) < count; i++ {
		name := fmt.Sprintf("p%d", i)
		switch i % 10 {
		case 3, 6:
			name = fmt.Sprintf("@types/t%d", i)
		case 9:
			name = fmt.Sprintf("@scope-%d/s%d", i%50, i)
		}
		p := add("", name, "1.0.0")
		if i > 0 {
			p.Dependencies = map[string]string{fmt.Sprintf("p%d", i/10*10): "1.0.0"}
		}
		if i%10 == 0 {
			word := map[bool]string{true: "first", false: fmt.Sprintf("bin%d", i)}[i == 0]
			p.Bin = map[string]string{word: "cli.js"}
			p.files["cli.js"] = "#!/usr/bin/env node\nprocess.exit(0)\n"
			nested := fmt.Sprintf("@types/t%d", i)
			p.Dependencies = map[string]string{nested: "2.0.0"}
			add(p.at+"/", nested, "2.0.0")
		}
		p.HasInstallScript = i%100 == 0
	}
	return tree
}

// tarball is the package as npm fetches it.
func (p *npmPackage) tarball(t *testing.T) []byte {
	t.Helper()
	about := map[string]any{"name": p.name, "version": p.Version, "main": "index.js", "dependencies": p.Dependencies, "bin": p.Bin}
	if p.HasInstallScript {
		about["scripts"] = map[string]string{"postinstall": `node -e 'require("fs").writeFileSync("installed", "")'`}
	}
	p.files["package.json"] = jsonText(t, about)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range p.files {
		err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text)), Format: tar.FormatPAX})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
