package backendtest

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/cloche-dev/cloche"
	"github.com/cloche-dev/cloche/internal/prober"
)

// An op is one operation that the probe tries inside.
type (
	op   = prober.Attempt
	text = prober.Text
)

// An answer is the result of an op.
type answer struct {
	prober.Answer
	op op
}

// token is in the arguments of the processes of a case.
var token string

// probeArgs returns the arguments that make this program the probe.
func (c *check) probeArgs(ops ...op) (name string, args []string) {
	name, err := os.Executable()
	c.must(err)
	return name, []string{probeWord, c.token, opList(ops)}
}

func opList(ops []op) string {
	list, err := json.Marshal(ops)
	if err != nil {
		panic(err) // cannot happen: these are plain values
	}
	return string(list)
}

// probeMain is the program that runs inside. Its arguments are a token, which marks the
// process, and a list of attempts. It prints the answers.
func probeMain(args []string) int {
	var ops []op
	if len(args) != 2 || json.Unmarshal([]byte(args[1]), &ops) != nil {
		fmt.Fprintln(os.Stderr, "probe: a token and a list of attempts are needed")
		return 2
	}
	token = args[0]
	answers := make([]prober.Answer, len(ops))
	for i, o := range ops {
		answers[i] = prober.Try(o, operations)
	}
	return printJSON(answers)
}

// argumentsMain prints its arguments.
func argumentsMain(args []string) int {
	return printJSON([]prober.Answer{{List: prober.Texts(args)}})
}

func printJSON(answers []prober.Answer) int {
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		return 2
	}
	return 0
}

// verifyMain runs the prober of Session.Verify.
func verifyMain() int {
	if err := cloche.RunProber(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "prober:", err)
		return 2
	}
	return 0
}
