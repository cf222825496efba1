package doclint

import (
	"fmt"
	"os"
	"testing"
)

// The tests work in the top folder of the repository, as its pages do.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
