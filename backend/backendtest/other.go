//go:build !linux

package backendtest

import (
	"os"

	"github.com/cloche-dev/cloche/backend"
	"github.com/cloche-dev/cloche/internal/prober"
)

func exit(code int) { os.Exit(code) }

var (
	cases      []testCase
	operations prober.Table
)

func superviseMain([]string, []backend.Entry) int { return 2 }
