package notify

import "github.com/cloche-dev/cloche/plan"

// A Config says what a broker holds.
type Config struct {
	// Judge knows the rules. It is made when it is first needed: most commands
	// change nothing.
	Judge func() *plan.Judge
	// Roots are the guarded folders, as seen inside: Landlock refuses every change
	// in them to the sandboxed processes.
	Roots []string
	// Reads: the filter hands over opens for reading too, because rules hide by
	// patterns.
	Reads bool
}
