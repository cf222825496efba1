//go:build !linux

package backendtest

import (
	"os"

	"github.com/cloche-dev/cloche/backend"
)

func exit(code int) { os.Exit(code) }

var cases []testCase

func probeMain([]string) int                      { return 2 }
func argumentsMain([]string) int                  { return 2 }
func superviseMain([]string, []backend.Entry) int { return 2 }
