// Command cloche-https is the command cloche with a look inside TLS, for policies that have secrets or
// rules about requests of HTTPS. cloche starts it in its own place for them. It is a program
// of its own because what it links makes every start slower, and cloche is started for every command.
package main

import (
	"os"

	"github.com/cloche-dev/cloche/https"
	"github.com/cloche-dev/cloche/internal/cli"
)

func main() { os.Exit(cli.MainWith(os.Args[1:], https.Inspect)) }
