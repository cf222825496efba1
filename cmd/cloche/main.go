// Command cloche runs commands under a sandbox. See `cloche help`.
package main

import (
	"os"

	"github.com/cloche-dev/cloche/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
