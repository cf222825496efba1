package cloche_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloche-dev/cloche/internal/testenv"
	"github.com/cloche-dev/cloche/policy"
)

// workdays are what a developer does all day, as scripts that need the tool of
// their name. None may meet a refusal.
var workdays = map[string]string{
	"git": `git clone -q upstream clone; cd clone; git checkout -q -b topic; echo x > x; git add x; git commit -qm x
		git fetch -q; git rebase -q origin/main; git checkout -q main; git merge -q topic; git branch -d topic; git stash list; git gc -q`,
	"npm": `mkdir app; cd app; echo '{"name":"app","version":"1.0.0","scripts":{"test":"node -e \"process.exit(require(\\\"dep\\\") === 7 ? 0 : 1)\""}}' > package.json
		npm install --silent --offline --no-audit --no-fund ../dep.tgz; test -e node_modules/dep/.vscode/settings.json
		npm test --silent; rm -rf node_modules; npm ci --silent --offline --no-audit --no-fund; npm test --silent; npm uninstall --silent --offline --no-audit --no-fund dep`,
	"go": `mkdir -p m/lib; cd m; printf 'module m\n\ngo 1.20\n' > go.mod; printf 'package lib\n\nfunc Seven() int { return 7 }\n' > lib/lib.go
		printf 'package lib\n\nimport "testing"\n\nfunc TestSeven(t *testing.T) { if Seven() != 7 { t.Fatal() } }\n' > lib/lib_test.go
		printf 'package main\n\nimport "m/lib"\n\nfunc main() { println(lib.Seven()) }\n' > main.go
		export GOCACHE=$PWD/.cache GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local; go build ./...; go test ./... > /dev/null; go vet ./...; gofmt -w .; go run .`,
	"make": `printf 'all: out/x\nout/%%: %%.c\n\tmkdir -p out\n\tcc -o $@ $<\nclean:\n\trm -rf out\n' > Makefile; echo 'int main(void) { return 0; }' > x.c
		make -s; ./out/x; make -s clean; make -s -j2`,
	"python3": `python3 -m venv --without-pip .venv; . .venv/bin/activate; mkdir pkg; echo 'def f(): return 7' > pkg/__init__.py
		printf 'import unittest, pkg\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(pkg.f(), 7)\n' > test_pkg.py; python -m unittest -q 2> /dev/null; test -d pkg/__pycache__`,
	"vim": `printf 'one\n' > file; vim -Nu NONE -es -c 'set backup writebackup' -c 's/one/two/' -c 'wq' file < /dev/null; grep -q two file`,
	"sed": `echo a > f; sed -i s/a/b/ f; sed -i.bak s/b/c/ f; perl -pi -e s/c/d/ f; echo e > f.tmp; mv f.tmp f; cp -a f g; ln f h; ln -s f i; touch -r f g; chmod 600 g; mkdir -p a/b/c; mv a b; rm -rf b
		tar cf t.tar f g h i; tar xf t.tar; cat f | tee f2 > /dev/null; mktemp -p . > /dev/null; install -m 755 f bin; dd if=f of=f3 status=none; split -b 1 f; sort -o f f`,
	"cmake": `mkdir c; cd c; printf 'cmake_minimum_required(VERSION 3.10)\nproject(c C)\nenable_testing()\nadd_library(seven lib.c)\nadd_executable(app main.c)\ntarget_link_libraries(app seven)\nadd_test(NAME app COMMAND app)\n' > CMakeLists.txt
		echo 'int seven(void) { return 7; }' > lib.c; echo 'int seven(void); int main(void) { return seven() - 7; }' > main.c
		cmake -S . -B build > log; cmake --build build -j4 > log; ctest --test-dir build > log; touch lib.c; cmake --build build > log; cmake --install build --prefix $PWD/out > log`,
	"/usr/bin/pytest-3": `PATH=/usr/bin:/bin; mkdir t; cd t; for i in 1 2 3 4 5 6 7 8; do printf 'def test_%s(tmp_path):\n    (tmp_path / "x").write_text("7")\n    assert (tmp_path / "x").read_text() == "7"\n' $i > test_$i.py; done
		/usr/bin/pytest-3 -q -n4 > log || { cat log; exit 1; }; grep -q '8 passed' log; /usr/bin/pytest-3 -q -n4 --lf > log`,
	"cargo": `mkdir -p c/src; cd c; printf '[package]\nname = "c"\nversion = "0.1.0"\nedition = "2021"\n' > Cargo.toml; echo 'fn main() { println!("7"); }' > src/main.rs; HOME=$PWD CARGO_HOME=$PWD/.cargohome cargo build -q --offline; ./target/debug/c`,
}

// F3 N8: a whole day of work meets no refusal that surprises: nothing is refused in
// the workspace, in the places where tools keep their files there.
func TestWorkday(t *testing.T) {
	for tool, script := range workdays {
		t.Run(tool, func(t *testing.T) {
			testenv.Need(t, "userns", "landlock", tool)
			t.Parallel()
			ws := workspace(t)
			setup := makeDependency + `git init -q -b main upstream && cd upstream && echo up > up && git add up && git -c user.name=a -c user.email=a@example.org commit -qm up`
			if out, err := exec.Command("sh", "-c", "cd "+ws+"; "+setup).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p := policy.Workspace(ws).With(policy.WithEnv("PATH", os.Getenv("PATH")), policy.WithEnv("GIT_AUTHOR_NAME", "a"), policy.WithEnv("GIT_AUTHOR_EMAIL", "a@example.org"),
				policy.WithEnv("GIT_COMMITTER_NAME", "a"), policy.WithEnv("GIT_COMMITTER_EMAIL", "a@example.org"))
			r, err := open(t, p, ws).Command(t.Context(), "sh", "-euc", script).Capture()
			if err != nil {
				t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
			}
			for _, d := range r.Denied {
				if strings.HasPrefix(d.Path, ws+"/") {
					t.Errorf("%v", d.String())
				}
			}
		})
	}
}

// makeDependency makes a package with names in it that are protected anywhere but
// where packages are installed.
const makeDependency = `mkdir -p package/.vscode package/.husky; echo '{}' > package/.vscode/settings.json; echo x > package/.husky/pre-commit
	echo 'module.exports = 7' > package/index.js; echo '{"name":"dep","version":"1.0.0"}' > package/package.json; tar czf dep.tgz package; rm -r package
`
