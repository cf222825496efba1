package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/plan"
)

// A workday is something that a developer does all day, under the options that it
// needs and no others.
type workday struct {
	name  string
	needs []string
	// flags are the options of `cloche run`.
	flags []string
	// noRoot: the program refuses to run as root.
	noRoot bool
	// setup prepares the workspace outside, and may return more options.
	setup func(t *testing.T, ws string) []string
	// script runs inside.
	script string
	// meanwhile runs outside while the script does.
	meanwhile func(ctx context.Context, ws string) error
}

var workdays = []workday{
	{name: "git", needs: []string{"git"}, setup: byScript(`git init -q -b main upstream && cd upstream && echo up > up && git add up && git -c user.name=a -c user.email=a@example.org commit -qm up`),
		script: `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
		git clone -q upstream clone; cd clone; git checkout -q -b topic; echo x > x; git add x; git commit -qm x
		git fetch -q; git rebase -q origin/main; git checkout -q main; git merge -q topic; git branch -d topic; git stash list; git gc -q`},
	{name: "npm-ci", needs: []string{"npm", "node"}, flags: []string{"--preset", "node"}, setup: func(t *testing.T, ws string) []string { return npmProject(t, ws, manyPackages) },
		script: `cd app; npm ci; npm test --silent; rm -rf node_modules; npm ci; npm test --silent`},
	{name: "npm-install", needs: []string{"npm", "node"}, flags: []string{"--preset", "node", "--net", "none"}, setup: byScript(makeDependency),
		script: `mkdir app; cd app; echo '{"name":"app","version":"1.0.0","scripts":{"test":"node test.js"}}' > package.json; echo 'process.exit(require("dep") - 7)' > test.js
		npm install --silent --offline --no-audit --no-fund ../dep.tgz; test -e node_modules/dep/.vscode/settings.json
		npm test --silent; rm -rf node_modules; npm ci --silent --offline --no-audit --no-fund; npm test --silent; npm uninstall --silent --offline --no-audit --no-fund dep`},
	{name: "go-test", needs: []string{"go"}, flags: []string{"--preset", "go", "--net", "none"},
		script: `mkdir -p m/lib; cd m; printf 'module m\n\ngo 1.20\n' > go.mod; printf 'package lib\n\nfunc Seven() int { return 7 }\n' > lib/lib.go
		printf 'package lib\n\nimport "testing"\n\nfunc TestSeven(t *testing.T) { if Seven() != 7 { t.Fatal() } }\n' > lib/lib_test.go
		printf 'package main\n\nimport (\n\t"m/lib"\n\t"os"\n)\n\nfunc main() { os.Exit(lib.Seven() - 7) }\n' > main.go
		export GOTOOLCHAIN=local CGO_ENABLED=0; go build ./...; go test ./...; go test -count=1 ./...; go vet ./...; gofmt -w .; go run .`},
	{name: "make", needs: []string{"make", "gcc"},
		script: `printf 'all: out/x\nout/%%: %%.c\n\tmkdir -p out\n\tcc -o $@ $<\nclean:\n\trm -rf out\n' > Makefile; echo 'int main(void) { return 0; }' > x.c
		make -s; ./out/x; make -s clean; make -s -j2`},
	{name: "python-unittest", needs: []string{"/usr/bin/python3"}, flags: []string{"--preset", "python", "--net", "none"},
		script: `/usr/bin/python3 -m venv --without-pip .venv; . .venv/bin/activate; mkdir pkg; echo 'def f(): return 7' > pkg/__init__.py
		printf 'import unittest, pkg\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(pkg.f(), 7)\n' > test_pkg.py; python -m unittest -q 2> log; grep -q OK log; test -d pkg/__pycache__`},
	{name: "pip-install-wheel", needs: []string{"/usr/bin/python3", "/usr/bin/pip3"}, flags: []string{"--preset", "python", "--net", "none"}, setup: byScript(makeWheel),
		script: `PATH=/usr/bin:/bin; python3 -m venv --without-pip --system-site-packages .venv; . .venv/bin/activate
		python -m pip install -q --no-index ./pkg-1.0-py3-none-any.whl; python -c 'import pkg; assert pkg.seven() == 7'
		python -m pip uninstall -q -y pkg; python -m pip install -q --no-index --find-links . pkg; python -c 'import pkg; assert pkg.seven() == 7'`},
	{name: "pytest", needs: []string{"/usr/bin/pytest-3"}, flags: []string{"--preset", "python", "--net", "none"},
		script: `PATH=/usr/bin:/bin; mkdir t; cd t; for i in 1 2 3 4 5 6 7 8; do printf 'def test_%s(tmp_path):\n    (tmp_path / "x").write_text("7")\n    assert (tmp_path / "x").read_text() == "7"\n' $i > test_$i.py; done
		pytest-3 -q -n4 > log || { cat log; exit 1; }; grep -q '8 passed' log; pytest-3 -q -n4 --lf > log`},
	{name: "cargo-build", needs: []string{"/usr/bin/cargo", "/usr/bin/rustc"}, flags: []string{"--preset", "rust", "--net", "none"},
		script: `PATH=/usr/bin:/bin; mkdir -p c/src; cd c; printf '[package]\nname = "c"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml; echo 'fn main() { println!("7"); }' > src/main.rs
		cargo build -q --offline; ./target/debug/c; echo 'fn main() { println!("8"); }' > src/main.rs; cargo build -q --offline; ./target/debug/c`},
	{name: "cmake-build", needs: []string{"cmake"},
		script: `mkdir c; cd c; printf 'cmake_minimum_required(VERSION 3.10)\nproject(c C)\nenable_testing()\nadd_library(seven lib.c)\nadd_executable(app main.c)\ntarget_link_libraries(app seven)\nadd_test(NAME app COMMAND app)\n' > CMakeLists.txt
		echo 'int seven(void) { return 7; }' > lib.c; echo 'int seven(void); int main(void) { return seven() - 7; }' > main.c
		cmake -S . -B build > log; cmake --build build -j4 > log; ctest --test-dir build > log; touch lib.c; cmake --build build > log; cmake --install build --prefix $PWD/out > log`},
	{name: "postgres", needs: []string{"postgres"}, flags: []string{"--net", "loopback"}, noRoot: true,
		script: `PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; export PGDATA=$PWD/data PGHOST=127.0.0.1 PGPORT=5432 PGUSER=dev PGDATABASE=postgres
		initdb -N -A trust -U dev > log; mkdir run; start() { pg_ctl -w -s -l server.log -o "-c listen_addresses=127.0.0.1 -c unix_socket_directories=$PWD/run" start; }
		start; psql -q -v ON_ERROR_STOP=1 -c 'create table t (n int primary key)' -c 'insert into t select generate_series(1, 10000)' -c 'create index on t ((n % 7))'
		PGHOST=$PWD/run psql -q -v ON_ERROR_STOP=1 -c 'vacuum full analyze t' -c 'checkpoint'; pg_ctl -w -s -m fast stop
		start; test "$(psql -Atc 'select sum(n) from t')" = 50005000; pg_ctl -w -s -m immediate stop; start; test "$(psql -Atc 'select count(*) from t')" = 10000; pg_ctl -w -s stop`},
	{name: "esbuild-watch", needs: []string{"esbuild", "node"}, flags: []string{"--preset", "node", "--net", "none"}, setup: byScript(`mkdir src; echo 'import {say} from "./lib"; say()' > src/app.js; echo 'export const say = () => console.log("one")' > src/lib.js`),
		script: `esbuild src/app.js --bundle --outfile=out/app.js --log-level=error --watch=forever & watch=$!
		until test "$(node out/app.js 2> /dev/null)" = two; do sleep 0.1; done; kill $watch`,
		meanwhile: func(ctx context.Context, ws string) error {
			if err := untilHolds(ctx, ws+"/out/app.js", `"one"`); err != nil {
				return err
			}
			return os.WriteFile(ws+"/src/lib.js", []byte(`export const say = () => console.log("two")`), 0o644)
		}},
	{name: "node-watch", needs: []string{"node"}, flags: []string{"--preset", "node", "--net", "none"}, setup: byScript(`mkdir src; echo one > src/file`),
		script: `node -e 'const fs = require("fs"); fs.watch("src", () => { if (fs.readFileSync("src/file", "utf8") === "two") process.exit(0) }); fs.writeFileSync("watching", "yes"); setTimeout(() => process.exit(1), 500000)'`,
		meanwhile: func(ctx context.Context, ws string) error {
			if err := untilHolds(ctx, ws+"/watching", "yes"); err != nil {
				return err
			}
			return os.WriteFile(ws+"/src/file", []byte("two"), 0o644)
		}},
	{name: "vim", needs: []string{"vim"},
		script: `printf 'one\n' > file; vim -Nu NONE -i NONE -es -c 'set backup writebackup' -c 's/one/two/' -c 'wq' file < /dev/null; grep -q two file`},
	{name: "sed", needs: []string{"sed", "perl"},
		script: `echo a > f; sed -i s/a/b/ f; sed -i.bak s/b/c/ f; perl -pi -e s/c/d/ f; echo e > f.tmp; mv f.tmp f; cp -a f g; ln f h; ln -s f i; touch -r f g; chmod 600 g; mkdir -p a/b/c; mv a b; rm -rf b
		tar cf t.tar f g h i; tar xf t.tar; cat f | tee f2 > /dev/null; mktemp -p . > /dev/null; install -m 755 f bin; dd if=f of=f3 status=none; split -b 1 f; sort -o f f`},
}

// runsVariable is how often each workday is repeated.
const runsVariable = "CLOCHE_WORKDAY_RUNS"

// F3 N8: a whole day of work meets no refusal, and cloche says nothing: each tool
// works under its preset, on a machine that never ran it and again with what that
// left behind.
func TestWorkday(t *testing.T) {
	runs := 1
	if text := os.Getenv(runsVariable); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			t.Fatalf("%s: %q", runsVariable, text)
		}
	}
	for _, w := range workdays {
		t.Run(w.name, func(t *testing.T) {
			testenv.Need(t, append([]string{"userns", "landlock"}, w.needs...)...)
			if w.noRoot && os.Geteuid() == 0 {
				t.Skip("the program refuses to run as root; the tests run as an ordinary user as well")
			}
			t.Parallel()
			home := varFolder(t)
			for range runs {
				w.run(t, home, varFolder(t))
			}
		})
	}
}

// run runs the workday once.
func (w workday) run(t *testing.T, home, ws string) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report")
	// Homes do not lie in private folders, as this one does.
	args := append([]string{clocheWord, "run", "--backend", "native", "--ro", home, "--report", report}, w.flags...)
	if w.setup != nil {
		args = append(args, w.setup(t, ws)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, append(args, "--", "sh", "-euc", w.script)...)
	cmd.Dir, cmd.Env = ws, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "GORACE=" + os.Getenv("GORACE")}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		if w.meanwhile == nil {
			done <- nil
			return
		}
		done <- w.meanwhile(ctx, ws)
	}()
	err = cmd.Wait()
	cancel()
	if err != nil {
		t.Fatalf("%v (%v): %s%s", err, <-done, stdout.Bytes(), stderr.Bytes())
	}
	if err := <-done; err != nil {
		t.Errorf("outside: %v", err)
	}
	if stderr.Len() > 0 {
		t.Errorf("noise: %s", stderr.Bytes())
	}
	for _, d := range denied(t, report) {
		// As root, Python and others write next to their own programs.
		if !strings.HasPrefix(d.Path, "/usr/") {
			t.Errorf("refused: %v", d.String())
		}
	}
}

// denied is what the report of a run says was refused.
func denied(t *testing.T, report string) []plan.Denial {
	t.Helper()
	text, err := os.ReadFile(report)
	var r struct{ Result *cloche.Result }
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.Result == nil {
		t.Fatalf("the report: %v: %s", err, text)
	}
	return r.Result.Denied
}

// byScript prepares a workspace with a script.
func byScript(script string) func(*testing.T, string) []string {
	return func(t *testing.T, ws string) []string {
		t.Helper()
		runOutside(t, ws, "set -eu; "+script)
		return nil
	}
}

// untilHolds waits until a file holds a text.
func untilHolds(ctx context.Context, file, text string) error {
	for {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), text) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// varFolder returns a folder that is not in /tmp, which is private.
func varFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cloche-tool")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// makeDependency makes a package with names in it that are protected anywhere but
// where packages are installed.
const makeDependency = `mkdir -p package/.vscode package/.husky; echo '{}' > package/.vscode/settings.json; echo x > package/.husky/pre-commit
	echo 'module.exports = 7' > package/index.js; echo '{"name":"dep","version":"1.0.0"}' > package/package.json; tar czf dep.tgz package; rm -r package
`

// makeWheel makes a package that pip installs.
const makeWheel = `mkdir -p w/pkg w/pkg-1.0.dist-info; echo 'def seven(): return 7' > w/pkg/__init__.py; printf 'Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n' > w/pkg-1.0.dist-info/METADATA
	printf 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > w/pkg-1.0.dist-info/WHEEL
	printf 'pkg/__init__.py,,\npkg-1.0.dist-info/METADATA,,\npkg-1.0.dist-info/WHEEL,,\npkg-1.0.dist-info/RECORD,,\n' > w/pkg-1.0.dist-info/RECORD
	cd w; /usr/bin/python3 -m zipfile -c ../pkg-1.0-py3-none-any.whl pkg pkg-1.0.dist-info; cd ..; rm -r w
`
