package pathx

import "fmt"

// UnsetError means that the path depends on something without a value: an environment
// variable, "~", "cwd", or a URN. The entry is dropped and reported; it is no mistake in the
// policy.
type UnsetError struct{ Name string }

func (e *UnsetError) Error() string {
	switch {
	case e.Name == "~":
		return "the home folder (~) is not known; set HOME or write an absolute path"
	case e.Name == "cwd" || hasURNScheme(e.Name):
		return fmt.Sprintf("%s has no value in this run", e.Name)
	}
	return fmt.Sprintf("variable %s is unset or empty; set it or write ${%s:-default}", e.Name, e.Name)
}

// UnknownURNError means that the path begins with a URN that cloche does not
// define.
type UnknownURNError struct{ URN string }

func (e *UnknownURNError) Error() string {
	return fmt.Sprintf("unknown URN %q; known are urn:cloche:cwd, urn:cloche:workspace, urn:cloche:document and urn:cloche:self", e.URN)
}

// SyntaxError means that the path is not well formed. Pos is the offset in
// bytes of the first wrong character of Input.
type SyntaxError struct {
	Input  string
	Pos    int
	Reason string // what is wrong and what would be right
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("path %q, character %d: %s", e.Input, e.Pos+1, e.Reason)
}

// RelativeError means that the expansion is not absolute. Path is the result, which may be
// empty.
type RelativeError struct{ Input, Path string }

func (e *RelativeError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("path %q is empty; write an absolute path", e.Input)
	}
	return fmt.Sprintf("path %q gives %q, which is relative; begin it with /, ~/, cwd/ or urn:cloche:workspace/", e.Input, e.Path)
}

// ValueError means that the value of a variable or place contains a NUL byte, at which the
// kernel would end the path.
type ValueError struct{ Name string }

func (e *ValueError) Error() string {
	return fmt.Sprintf("the value of %s holds a NUL byte, which no path may", e.Name)
}
