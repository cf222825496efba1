// Package doclint is the tests that read this repository: that the pages name what
// exists, that links and code in them work, that each row of the table of features has
// its tests, that packages import only what the architecture allows, that the texts use
// plain words, and that no test sleeps without a reason.
package doclint
