// Package secret reads the values of secrets from their sources, and makes the placeholders that
// commands have instead.
//
// A value is read at the moment of use, in cloche's own process, and never stored. Each read has
// a time limit and a limit of size, and an empty value is an error: the request that needed it
// fails. Errors name the secret and the source, and never have a part of the value; what a
// program writes to its standard error is left out, too.
//
// The caller clears a value after use. That is as far as Go allows: the variables of cloche's own
// environment are strings, which cannot be cleared, and package exec copies the output of programs
// through a pipe of the kernel.
package secret
