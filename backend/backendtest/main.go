package backendtest

import (
	"os"
	"runtime"

	"github.com/cloche-dev/cloche/backend"
)

// The first arguments that make the test binary do something else than run tests.
const (
	probeWord     = "cloche-backendtest-probe"
	argumentsWord = "cloche-backendtest-arguments"
	superviseWord = "cloche-backendtest-supervise"
	verifyWord    = "cloche-backendtest-verify"
)

// hooked is set once Main was called.
var hooked bool

// Main has to be called first in TestMain, with the backends that are tested. In a test
// it returns at once. In a process that the suite started, inside a sandbox or to be
// killed, it does what the suite asks for and exits.
func Main(entries ...backend.Entry) {
	hooked = true
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case probeWord:
		exit(probeMain(os.Args[2:]))
	case argumentsWord:
		exit(argumentsMain(os.Args[3:]))
	case verifyWord:
		exit(verifyMain())
	case superviseWord:
		exit(superviseMain(os.Args[2:], entries))
	}
}

// unready returns why the suite cannot run here, or "".
func unready() string {
	switch {
	case len(cases) == 0:
		return "the cases are not written for " + runtime.GOOS
	case !hooked:
		panic("backendtest: TestMain has to call backendtest.Main first")
	}
	return ""
}

// leave ends the case by ending its goroutine.
func (c *check) leave() { runtime.Goexit() }
