package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
)

// npmFiles are the files of a package, beside package.json.
const npmFiles = 20

// npmJob installs packages from npm's own cache, which is filled from a registry on
// loopback before.
func npmJob(ctx context.Context, ws string, s sizes) (job, []string, error) {
	tarballs := map[string][]byte{}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := tarballs[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data) // a client that is gone is not measured
	}))
	defer registry.Close()
	dependencies := map[string]string{}
	locked := map[string]any{"": map[string]any{"name": "app", "version": "1.0.0", "dependencies": dependencies}}
	for i := range s.packages {
		name := fmt.Sprintf("package-%d", i)
		data, err := npmTarball(name)
		if err != nil {
			return job{}, nil, err
		}
		sum := sha512.Sum512(data)
		at := fmt.Sprintf("/%s/-/%s-1.0.0.tgz", name, name)
		tarballs[at], dependencies[name] = data, "1.0.0"
		locked["node_modules/"+name] = map[string]string{"version": "1.0.0", "resolved": registry.URL + at,
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
	}
	app := map[string]any{"name": "app", "version": "1.0.0", "dependencies": dependencies}
	lock := map[string]any{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": locked}
	for name, content := range map[string]any{"package.json": app, "package-lock.json": lock} {
		text, err := json.Marshal(content)
		if err := errors.Join(err, os.WriteFile(filepath.Join(ws, name), text, 0o644)); err != nil {
			return job{}, nil, err
		}
	}
	npm := []string{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", filepath.Join(ws, ".cache")}
	err := inFolder(ctx, ws, append(os.Environ(), "npm_config_registry="+registry.URL), npm...)
	return job{Argv: append(npm, "--offline")}, []string{"rm -rf node_modules"}, err
}

// npmTarball is a package as a registry sends it.
func npmTarball(name string) ([]byte, error) {
	files := map[string]string{"package.json": fmt.Sprintf(`{"name": %q, "version": "1.0.0", "main": "lib/file-0.js"}`, name)}
	for i := range npmFiles {
		files[fmt.Sprintf("lib/part-%d/file-%d.js", i/5, i)] = fmt.Sprintf("module.exports = %q\n", name)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for file, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + file, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), z.Close())
	return b.Bytes(), err
}
