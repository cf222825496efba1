//go:build !linux

package main

func isTmpfs(string) bool { return false }

// fileSystem is not known here.
func fileSystem(string) string { return "unknown" }
