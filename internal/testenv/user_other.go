//go:build !unix

package testenv

func lacksUser() string { return "this system has no user ids" }
