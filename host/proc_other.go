//go:build !linux

package host

func coveredInProc() []string { return nil }
