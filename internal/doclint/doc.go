// Package doclint is the tests that read this repository: that the pages name what
// exists, that links and code in them work, that each row of the table of features has
// its tests, that packages import only what the architecture allows, and that errors
// speak in one voice.
package doclint
