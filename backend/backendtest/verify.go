package backendtest

import (
	"fmt"
	"os"

	"github.com/cloche-dev/cloche"
)

// verifyMain is the prober of Session.Verify.
func verifyMain() int {
	if err := cloche.RunProber(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "prober:", err)
		return 2
	}
	return 0
}
