//go:build !unix

package testenv

func lacksUser() string { return "this system has no user ids" }

func notOwn(string) string { return "this system has no user ids" }
