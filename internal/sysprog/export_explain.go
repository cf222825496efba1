package sysprog

import (
	"fmt"
	"strings"
)

// The words of the explanation of a record, in the order of struct explanation in launch.c:
// the text before the name of an error, the text after it, and the text if there is no error.
const (
	explainBefore = iota
	explainAfter
	explainMismatch
	explainWords
)

// changedHint is added if a path has changed since the program was made.
const changedHint = "; something has changed since the command was prepared: prepare it again"

// explain appends the texts with which a launcher in C reports what Run reports as a
// [StepError] or a [CloneError].
func (e *exporter) explain(records int) {
	prefix := e.options.Explain
	table := e.data(make([]byte, records*explainWords*wordSize))
	last, words := -1, [explainWords]uint64{}
	for n, step := range e.image.steps[:records] {
		if step != last {
			last, words = step, e.explainStep(prefix, step)
		}
		for i, w := range words {
			e.put(table+(n*explainWords+i)*wordSize, w)
		}
	}
	e.putHead(headTexts, address(table))
	e.putHead(headErrors, e.errorNames())
	e.putHead(headErrorCount, uint64(len(errnoNames)))
	e.putHead(headCloneFailed, e.text(prefix+cloneText(e.options.CloneFlags)))
	e.putHead(headChanged, e.text(changedHint))
}

func (e *exporter) explainStep(prefix string, index int) (words [explainWords]uint64) {
	err := StepError{Index: index, Step: e.image.program.Steps[index]}
	before, after := err.around()
	words[explainBefore] = e.text(prefix + before)
	if after != "" {
		words[explainAfter] = e.text(after)
	}
	words[explainMismatch] = e.text(err.mismatch())
	return words
}

// errorNames appends a table with the names of error numbers.
func (e *exporter) errorNames() uint64 {
	table := e.data(make([]byte, len(errnoNames)*wordSize))
	for i, name := range errnoNames {
		if name != "" {
			a := e.text(name)
			e.put(table+i*wordSize, a)
		}
	}
	return address(table)
}

// around returns the text of a failed step's error before and after the reason.
func (e *StepError) around() (before, after string) {
	before = fmt.Sprintf("step %d, ", e.Index)
	if e.Step.Label != "" {
		before += visible(e.Step.Label) + ": "
	}
	before += strings.TrimPrefix(e.Step.Call, "@") + ": "
	if !e.Step.Origin.IsZero() {
		after = " (rule " + visible(e.Step.Origin.String()) + ")"
	}
	return before, after
}

// mismatch returns the reason if the call succeeded with another result than wanted.
func (e *StepError) mismatch() string {
	if e.Step.Call == macroSameFile || e.Step.Want == nil {
		return (&StepError{Step: Step{Call: e.Step.Call}}).reason()
	}
	return fmt.Sprintf("returned something else than %s", number(*e.Step.Want))
}

// cloneText returns the text of a [CloneError] before the reason.
func cloneText(flags uint64) string {
	text := "cannot make a process"
	if flags != 0 {
		text += " in new namespaces (" + describe(flags, cloneNames) + ")"
	}
	return text + ": "
}
