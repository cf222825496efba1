package apitest

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// A toolchain is a build with a real tool under the preset for it. No network is
// needed: what registries would give comes from files.
type toolchain struct {
	preset string
	needs  []string
	// setup prepares the workspace, outside; build runs inside, twice.
	setup, build string
	// caches are the folders of the home folder that the build has to fill, and
	// also those that it may.
	caches, may []string
	// kept are files of the home folder that would run, or name what runs, outside.
	kept []string
	// quiet is what the tool tries in vain, and does without.
	quiet []string
}

var toolchains = []toolchain{
	{
		preset: "node", needs: []string{"npm", "node"},
		setup: makeDependency + `mkdir app; cd app; cat > package.json <<'X'
{"name":"app","version":"1.0.0","dependencies":{"dep":"file:../dep.tgz"},"scripts":{"test":"node -e \"process.exit(require('dep') === 7 ? 0 : 1)\""}}
X
HOME=$PWD/../other npm install --silent --offline --no-audit --no-fund --package-lock-only`,
		build:  `cd app; rm -rf node_modules; npm ci --offline --no-audit --no-fund; npm test --silent`,
		caches: []string{".npm/_cacache"}, may: []string{".npm"},
		kept: []string{".npm/_npx/1/x", ".npmrc", ".npm-global/bin/x", ".local/bin/x"},
	},
	{
		preset: "go", needs: []string{"go"},
		setup: `mkdir app; cd app; printf 'module app\n\ngo 1.20\n\nrequire example.org/dep v1.0.0\n' > go.mod
printf 'package main\n\nimport "example.org/dep"\n\nfunc main() { if dep.Seven() != 7 { panic(1) } }\n' > main.go`,
		build: `cd app; export GOPROXY=file://$PWD/../proxy GONOSUMDB=* GOFLAGS='-mod=mod -modcacherw' GOTOOLCHAIN=local CGO_ENABLED=0
go build -o out . && ./out && go vet .`,
		caches: []string{".cache/go-build", "go/pkg/mod/example.org/dep@v1.0.0"}, may: []string{"go/pkg/mod", "go/pkg/sumdb", ".config/go/telemetry"},
		kept: []string{"go/bin/x", ".config/go/env", "go/pkg/x"},
	},
	{
		preset: "python", needs: []string{"/usr/bin/python3", "/usr/bin/pip3"},
		setup: `mkdir -p src/pkg dist; echo 'def seven(): return 7' > src/pkg/__init__.py
printf 'from setuptools import setup\nsetup(name="pkg", version="1.0", packages=["pkg"])\n' > src/setup.py
cd src; /usr/bin/python3 setup.py -q sdist -d ../dist 2> /dev/null`,
		build: `PATH=/usr/bin:/bin; /usr/bin/python3 -m venv --clear --without-pip --system-site-packages .venv; . .venv/bin/activate
python -m pip install -q --no-index --no-build-isolation ./src; python -c 'import pkg; assert pkg.seven() == 7'
python -m pip install -q --force-reinstall --no-index --no-build-isolation --find-links dist pkg; python -c 'import pkg; assert pkg.seven() == 7'`,
		caches: []string{".cache/pip/wheels"}, may: []string{".cache/pip"},
		kept: []string{".local/lib/python3.11/site-packages/x.pth", ".config/pip/pip.conf", ".pip/pip.conf", ".local/bin/x"},
	},
	{
		preset: "rust", needs: []string{"/usr/bin/cargo", "/usr/bin/rustc"},
		setup: `mkdir -p dep/src app/src app/.cargo registry/index/3/d; cd dep
printf '[package]\nname = "dep"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml; echo 'pub fn seven() -> i32 { 7 }' > src/lib.rs
HOME=$PWD/../other /usr/bin/cargo package -q --offline --no-verify --allow-dirty 2> /dev/null; cp target/package/dep-0.1.0.crate ../registry/; cd ..
printf '{"name":"dep","vers":"0.1.0","deps":[],"features":{},"cksum":"%s","yanked":false}\n' $(sha256sum < registry/dep-0.1.0.crate | cut -d' ' -f1) > registry/index/3/d/dep
printf '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndep = "0.1.0"\n' > app/Cargo.toml
echo 'fn main() { assert_eq!(dep::seven(), 7) }' > app/src/main.rs
printf '[source.crates-io]\nreplace-with = "local"\n[source.local]\nlocal-registry = "%s/registry"\n' $PWD > app/.cargo/config.toml`,
		build:  `PATH=/usr/bin:/bin; cd app; /usr/bin/cargo build -q --offline; ./target/debug/app; /usr/bin/cargo test -q --offline > /dev/null`,
		caches: []string{".cargo/registry/src"}, may: []string{".cargo"},
		kept: []string{".cargo/bin/x", ".cargo/config.toml", ".cargo/config", ".cargo/env", ".cargo/env.fish", ".cargo/credentials.toml", ".rustup/x"},
	},
	{
		preset: "c", needs: []string{"cmake", "gcc", "ccache"},
		setup: `mkdir app; cd app; printf 'cmake_minimum_required(VERSION 3.13)\nproject(app C)\nadd_executable(app main.c)\n' > CMakeLists.txt
echo 'int main(void) { return 0; }' > main.c`,
		build:  `cd app; rm -rf out; cmake -S . -B out -DCMAKE_C_COMPILER_LAUNCHER=ccache > out.log; cmake --build out >> out.log; ./out/app`,
		caches: []string{".cache/ccache"},
		kept:   []string{".cache/ccache/ccache.conf", ".config/ccache/ccache.conf", ".cmake/packages/x/y"},
	},
	{
		// Playwright's browsers are started in this way, too. A profile, reports of crashes and
		// lists of fonts are the sandbox's own.
		preset: "browser", needs: []string{"chromium"},
		setup: `echo '<title>x</title><script>document.title = "ran " + (3+4)</script>' > page.html`,
		build: `chromium --headless --no-sandbox --dump-dom file://$PWD/page.html 2> /dev/null | grep -q '<title>ran 7'`,
		quiet: []string{"/proc", "/chromium/extensions", "/var/cache/fontconfig", ".google.com", ".gvt1.com", "2001:4860:4860::8888"},
		kept:  []string{".cache/ms-playwright/x", ".config/chromium/x", ".cache/fontconfig/x"},
	},
	{
		// The plugins that compile are not among Debian's packages of Maven: it reads
		// its project and the parent out of the repository, and javac compiles.
		preset: "java", needs: []string{"mvn", "javac", "jar"},
		setup: `mkdir -p app/src parent; cd app
printf '<project><modelVersion>4.0.0</modelVersion><parent><groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version></parent><artifactId>app</artifactId></project>' > pom.xml
printf '<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version><packaging>pom</packaging></project>' > ../parent/parent-1.pom
echo 'public class Seven { public static void main(String[] a) { if (a.length != 0) System.exit(1); } }' > src/Seven.java`,
		build: `export MAVEN_OPTS=-Duser.home=$HOME; cd app; mkdir -p ~/.m2/repository/org/example/parent/1; cp ../parent/parent-1.pom ~/.m2/repository/org/example/parent/1/
mvn -o -q validate; javac -d out src/Seven.java; jar cf seven.jar -C out .; java -cp seven.jar Seven`,
		caches: []string{".m2/repository/org/example/parent"}, may: []string{".m2/repository", ".gradle/caches", ".gradle/daemon", ".gradle/native", ".gradle/notifications"},
		kept: []string{".m2/settings.xml", ".m2/extensions.xml", ".mavenrc", ".gradle/init.d/x.gradle", ".gradle/init.gradle", ".gradle/gradle.properties", ".gradle/wrapper/x"},
	},
}

// F3: each toolchain builds under its preset, on a machine that never ran it: its
// caches land where the preset says, nothing else of the home folder changes, and
// nothing is refused.
func TestToolchainPresets(t *testing.T) {
	for _, tc := range toolchains {
		t.Run(tc.preset, func(t *testing.T) {
			testenv.Need(t, append([]string{"userns", "bwrap"}, tc.needs...)...)
			home, ws := toolHome(t)
			if tc.preset == "go" {
				goProxy(t, filepath.Join(ws, "proxy"))
			}
			runOutside(t, ws, "set -eu; "+tc.setup)
			namesPreset(t, tc, home, ws)
			for _, backend := range []string{"native", "bwrap"} {
				buildInside(t, tc, home, ws, backend)
			}
		})
	}
}

// namesPreset builds without the preset. Where a cache is missing, the line about it has to
// name the preset, and no line another one.
func namesPreset(t *testing.T, tc toolchain, home, ws string) {
	t.Helper()
	if len(tc.caches) == 0 || tc.preset == "python" { // pip asks whether it may write its cache, and does without
		return
	}
	s := open(t, policy.Workspace(ws).With(policy.WithEnv("PATH", os.Getenv("PATH")), policy.AllowRead(home)), ws)
	r, err := s.Command(t.Context(), "sh", "-euc", "trap 'exit 1' EXIT; "+tc.build).Capture()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(r.DeniedLines(""), "\n")
	if !strings.Contains(lines, "--preset "+tc.preset+",") || strings.Count(lines, "--preset ") != strings.Count(lines, "--preset "+tc.preset+",") {
		t.Errorf("without the preset %s:\n%s\n%s", tc.preset, lines, brief(r))
	}
}

// toolHome returns a home folder that no tool has been used in, and a workspace
// outside of it.
func toolHome(t *testing.T) (home, ws string) {
	t.Helper()
	dir := varFolder(t)
	home, ws = filepath.Join(dir, "home"), filepath.Join(dir, "ws")
	for _, d := range []string{home, ws} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	for _, name := range []string{"XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "GOCACHE", "GOPATH", "GOMODCACHE", "GOFLAGS",
		"CARGO_HOME", "RUSTUP_HOME", "NPM_CONFIG_CACHE", "PIP_CACHE_DIR", "UV_CACHE_DIR", "GRADLE_USER_HOME", "PYENV_VERSION", "CCACHE_DIR"} {
		t.Setenv(name, "") // so that the old value comes back
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	return home, ws
}

func runOutside(t *testing.T, dir, script string) {
	t.Helper()
	c := exec.Command("sh", "-c", script)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func buildInside(t *testing.T, tc toolchain, home, ws, backend string) {
	t.Helper()
	p, err := policy.FromPreset(tc.preset)
	if err != nil {
		t.Fatal(err)
	}
	// Homes do not lie in private folders, as this one does.
	p = p.With(policy.WithBackend(backend), policy.WithEnv("PATH", os.Getenv("PATH")), policy.AllowRead(home))
	s := open(t, p, ws)
	r, err := s.Command(t.Context(), "sh", "-euc", tc.build).Capture()
	if err != nil || !r.Success() {
		t.Fatalf("on %s: %v, %s", backend, err, brief(r))
	}
	for _, d := range r.Denied {
		if !slices.ContainsFunc(tc.quiet, func(q string) bool {
			return strings.Contains(d.Path, q+"/") || strings.HasSuffix(d.Path+d.Host, q)
		}) {
			t.Errorf("on %s: %v", backend, d)
		}
	}
	plant(t, s, home, tc.kept)
	for _, cache := range tc.caches {
		if entries, err := os.ReadDir(filepath.Join(home, cache)); err != nil || len(entries) == 0 {
			t.Errorf("on %s: %s is empty: %v", backend, cache, err)
		}
	}
	for _, file := range filesBelow(t, home) {
		within := func(dir string) bool { return strings.HasPrefix(file, dir+"/") }
		if !slices.ContainsFunc(slices.Concat(tc.caches, tc.may), within) && !within(".cache/cloche") && !within(".local/state/cloche") && !within(".local/share/cloche") {
			t.Errorf("on %s: %s was made in the home folder", backend, file)
		}
	}
}

// plant tries to make files of the home folder from inside, and reports those that
// came into being.
func plant(t *testing.T, s *cloche.Session, home string, files []string) {
	t.Helper()
	capture(t, s, `cd; for f in `+strings.Join(files, " ")+`; do mkdir -p $(dirname $f); echo planted >> $f; done`)
	for _, f := range files {
		if data, err := os.ReadFile(filepath.Join(home, f)); err == nil && strings.Contains(string(data), "planted") {
			t.Errorf("%s can be planted", f)
		}
	}
}

// filesBelow lists the files of a folder, relative to it.
func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		files = append(files, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// goProxy makes a module proxy of files, with one module.
func goProxy(t *testing.T, dir string) {
	t.Helper()
	at := filepath.Join(dir, "example.org/dep/@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	const mod = "module example.org/dep\n\ngo 1.20\n"
	for name, text := range map[string]string{"list": "v1.0.0\n", "v1.0.0.info": `{"Version":"v1.0.0"}`, "v1.0.0.mod": mod} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(at, "v1.0.0.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for name, text := range map[string]string{"go.mod": mod, "dep.go": "package dep\n\nfunc Seven() int { return 7 }\n"} {
		w, err := z.Create("example.org/dep@v1.0.0/" + name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}
